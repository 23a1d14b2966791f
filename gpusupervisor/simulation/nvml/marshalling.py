"""What pynvml passes to C, read and written as C would; strict where a CDLL would refuse or crash."""

import ctypes
from typing import Any, TypeAlias

Argument: TypeAlias = Any
"""What pynvml passes through ctypes, or an object behind it: its type shows only at run time."""

INVALID_ARGUMENT = 2
_BYREF = type(ctypes.byref(ctypes.c_int()))
_POINTER = ctypes.POINTER(ctypes.c_int).__mro__[1]
_SCALAR = ctypes.c_int.__mro__[1]
_ACCEPTED = (int, bytes, _BYREF, _SCALAR, _POINTER, ctypes.Array)


class Answer(Exception):  # noqa: N818  (not an error: how a handler answers another code than success)
    """Raised by a handler to answer an nvmlReturn_t other than SUCCESS."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def check(function: str, arguments: tuple[object, ...]) -> None:
    """Refuse what a real CDLL call refuses (ctypes.ArgumentError) or crashes on (AssertionError)."""
    for position, argument in enumerate(arguments, 1):
        if isinstance(argument, ctypes.Structure):
            # A CDLL takes it and crashes.
            raise AssertionError(f"{function}: argument {position} is a structure by value")  # noqa: TRY004
        if argument is not None and not isinstance(argument, _ACCEPTED):
            raise ctypes.ArgumentError(
                f"argument {position}: TypeError: Don't know how to convert parameter {position}"
            )


def target(argument: Argument) -> Argument:
    """The object behind byref(x), or the array itself; a NULL pointer is an invalid argument."""
    if argument is None:
        raise Answer(INVALID_ARGUMENT)
    return getattr(argument, "_obj", argument)


def number(argument: Argument) -> int:
    """An unsigned int by value: a ctypes scalar, or a plain int, which ctypes masks."""
    if isinstance(argument, int):
        return ctypes.c_uint(argument).value
    return int(argument.value)


def text(argument: Argument) -> str:
    """A char* argument."""
    raw = argument if isinstance(argument, bytes) else argument.value
    return str(raw.decode())


def write_text(buffer: Argument, size: Argument, value: str) -> None:
    """Fill a char buffer; INSUFFICIENT_SIZE when it is too small."""
    encoded = value.encode()
    if len(encoded) >= number(size):
        raise Answer(7)
    buffer.value = encoded


def write_handle(out: Argument, value: int) -> None:
    """Write a pointer value into byref(nvmlDevice_t); its `.contents` is NULL and must not be touched."""
    pointer = ctypes.c_void_p(value)
    ctypes.memmove(ctypes.addressof(target(out)), ctypes.addressof(pointer), ctypes.sizeof(pointer))


def read_handle(handle: Argument) -> int:
    """The pointer value of an nvmlDevice_t."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
