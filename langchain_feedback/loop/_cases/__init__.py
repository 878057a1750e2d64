"""Where cases come from, and which questions may become one."""
