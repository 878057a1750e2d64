"""What the demo shows, shipped with the package."""
