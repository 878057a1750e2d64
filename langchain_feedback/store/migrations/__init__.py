"""How the tables came to be, one module a step, and what runs the steps."""
