"""Parts of the jobs: leases, shards, and what a night runs."""
