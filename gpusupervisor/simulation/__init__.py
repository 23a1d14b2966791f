"""A simulated NVML beneath the real pynvml, simulated engines as real HTTP servers, the demo."""
