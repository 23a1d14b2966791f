"""Every kind of entry. `journalctl -x` explains each from `systemd/gpusupervisor.catalog`, which a test compares.

An id is made with `systemd-id128 new`, stays with its kind for ever, and is never given to another.
"""
