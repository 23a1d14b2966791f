"""Model files in the page cache: which there are, how much of them is in RAM, and reading them into it."""
