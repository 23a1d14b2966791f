"""Configuration files: read within bounds, checked by tables, layered so that the later value wins."""
