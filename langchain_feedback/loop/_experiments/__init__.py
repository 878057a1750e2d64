"""How large an experiment must be, what came of it, and what that says."""
