"""The structures of nvml.h that pynvml's wrappers get wrong: passed by reference, checked by us."""

import ctypes
from typing import ClassVar

from gpusupervisor.helper.values import ClockDomain

CLOCK_TYPES: dict[ClockDomain, int] = {"graphics": 0, "memory": 2}
"""nvmlClockType_t."""


def _version(structure: type[ctypes.Structure], number: int) -> int:
    """NVML_STRUCT_VERSION."""
    return ctypes.sizeof(structure) | number << 24


class ClockOffset(ctypes.Structure):
    """nvmlClockOffset_v1_t. MHz; those of memory count double in the clock that is reported (they are transfers)."""

    _fields_: ClassVar = [
        ("version", ctypes.c_uint),
        ("type", ctypes.c_uint),
        ("pstate", ctypes.c_uint),
        ("offset", ctypes.c_int),
        ("minimum", ctypes.c_int),
        ("maximum", ctypes.c_int),
    ]
    offset: int
    minimum: int
    maximum: int

    @classmethod
    def of(cls, domain: ClockDomain, megahertz: int = 0) -> "ClockOffset":
        """For P-state 0: NVIDIA's own tools use no other, and others work on Maxwell alone."""
        return cls(_version(cls, 1), CLOCK_TYPES[domain], 0, megahertz, 0, 0)


class FanSpeedInfo(ctypes.Structure):
    """nvmlFanSpeedInfo_v1_t."""

    _fields_: ClassVar = [("version", ctypes.c_uint), ("fan", ctypes.c_uint), ("speed", ctypes.c_uint)]
    speed: int

    @classmethod
    def of(cls, index: int) -> "FanSpeedInfo":
        """To be filled with the revolutions of one fan."""
        return cls(_version(cls, 1), index, 0)
