"""Question memory: the past questions nearest to one, exactly or by a graph."""
