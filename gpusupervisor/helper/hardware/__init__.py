"""The GPU's settings read and written through NVML. Synchronous, and for the NVML thread alone."""
