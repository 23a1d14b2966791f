"""gpusupervisor: a system service that owns the GPU."""

__version__ = "0.1.0"
