"""The log: entries of known kinds with fields, to journald in its own protocol, or as lines where there is none."""
