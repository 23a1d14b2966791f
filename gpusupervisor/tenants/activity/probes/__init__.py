"""Probes: how one tenant's work is seen, one module per kind. Passive: they load, wake and start nothing."""
