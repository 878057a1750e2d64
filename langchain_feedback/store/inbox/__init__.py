"""How signals of clients arrive: within limits, once each, and bursts held back."""
