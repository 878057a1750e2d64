"""Parts of the registry: rows, checks, switching, and what follows it."""
