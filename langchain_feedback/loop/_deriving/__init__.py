"""What the next question says of the answer before."""
