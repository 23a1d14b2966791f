"""What the driver says: the NVML thread, samples, runtime power state, errors by class."""
