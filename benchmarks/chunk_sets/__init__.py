"""What `chunk_quality.py` measures on: good texts, junk of them, other people's documents."""
