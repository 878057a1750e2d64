"""What becomes of an index: junk, duplicates, careful writing, and what answers add to it."""
