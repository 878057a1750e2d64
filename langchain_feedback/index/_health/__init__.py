"""Parts of the health check: what it looks at, and the statistics that it rests on."""
