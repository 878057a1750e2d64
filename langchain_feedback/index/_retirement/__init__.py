"""Parts of retirement: rules, facts, plan, run, audit, and what the index holds."""
