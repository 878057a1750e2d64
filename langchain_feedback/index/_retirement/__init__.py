"""Parts of retirement: rules, facts, plan, audit, and what the index holds."""
