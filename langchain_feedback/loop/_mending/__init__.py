"""From a correction to its proof."""
