"""Models: which there are, what fits, loading them without running out of memory, and how warm their files are."""
