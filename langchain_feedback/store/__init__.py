"""The feedback store: what was retrieved, what people said of it, and what follows."""
