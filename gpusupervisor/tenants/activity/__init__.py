"""Is a tenant working: passive probes, and the three-valued verdict made of what they saw."""
