"""Applications as data: definitions, their catalog, recognition, activity probes and release methods."""
