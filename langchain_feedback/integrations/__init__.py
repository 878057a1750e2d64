"""What joins this pack to other tools. Each module needs the extra of its own name."""
