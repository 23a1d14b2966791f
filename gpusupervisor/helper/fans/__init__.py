"""Fan control: pure decisions (curve, safety, command), the hands that write, and the mark that outlives us."""
