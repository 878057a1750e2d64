"""Moving feedback in and out, as JSON Lines."""
