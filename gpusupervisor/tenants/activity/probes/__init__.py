"""Probes: how one tenant's work is seen. Passive: they load, wake and start nothing.

One module per kind that asks an engine's API; `process_activity` watches the processes themselves.
"""
