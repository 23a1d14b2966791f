"""The privileged process: fans, profile, drift, and what /proc hides. It trusts nothing it is told."""
