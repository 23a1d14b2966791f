"""Self-checks: what is broken, what that breaks, how to fix it."""
