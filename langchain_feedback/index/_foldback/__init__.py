"""Parts of fold-back: gate, plan, job, and what a question finds."""
