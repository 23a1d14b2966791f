"""Whether what a profile set still stands, and what is done when it does not."""
