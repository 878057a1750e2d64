"""Parts of `ManagedIndex`: what it is to hold, and how that differs from what is known."""
