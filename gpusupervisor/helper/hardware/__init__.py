"""The GPU's settings read and written through NVML. Synchronous, and for the NVML thread alone."""

from gpusupervisor.helper.hardware.gpu import GpuHardware, clamped
from gpusupervisor.helper.hardware.session import HardwareSession, Xid

__all__ = ["GpuHardware", "HardwareSession", "Xid", "clamped"]
