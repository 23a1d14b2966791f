"""Values made fit for the wire: text that is valid and bounded, sizes that fit `t`, nested dictionaries of variants."""

from collections.abc import Callable, Mapping
from typing import Any

from dbus_fast import Variant

from gpusupervisor.clock import UNKNOWN
from gpusupervisor.errors import InvalidArgument
from gpusupervisor.foreign_text import harmless

TEXT_LIMIT = 1024
"""Characters of one text; nothing that is shown needs more."""
ERROR_LIMIT = 8 * 1024
"""Characters of an error's text, which may list every mistake of a configuration."""
DOCUMENT_LIMIT = 256 * 1024


def text(value: str, limit: int = TEXT_LIMIT) -> str:
    """One line that no terminal, log or marshaller can stumble over; much of what is shown others wrote."""
    return harmless(value, limit)


def sentence(value: str) -> str:
    """A text with the full stop that a whole sentence has; short reasons have none."""
    return value if value.endswith((".", "!", "?")) or not value else f"{value}."


def unknown_option(name: str, value: Variant, allowed: str) -> InvalidArgument:
    """The error for an option that there is not, or that is of another type."""
    return InvalidArgument(f"options: there is no {text(name, 64)!r} of type {value.signature}; allowed: {allowed}")


def document(value: str) -> str:
    """Like `text`, for several lines: line ends and tabs stay."""
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in value[:DOCUMENT_LIMIT])


def size(value: int | None) -> int:
    """Bytes, or any other unsigned figure, as `t`: None is "unknown" (all ones), a negative one is 0."""
    return UNKNOWN if value is None else min(max(value, 0), UNKNOWN)


def _texts(values: tuple[str, ...]) -> list[str]:
    return [text(value) for value in values]


def _sizes(values: Mapping[str, int]) -> dict[str, int]:
    return {text(key): size(value) for key, value in values.items()}


_CONVERTERS: Mapping[str, Callable[[Any], object]] = {
    "s": text,
    "t": size,
    "x": lambda value: min(max(value, -(2**63)), 2**63 - 1),
    "u": lambda value: min(max(value, 0), 2**32 - 1),
    "b": bool,
    "d": float,
    "as": _texts,
    "a{st}": _sizes,
    "a{sv}": dict,
    "au": list,
    "aa{sv}": list,
}


def variant(signature: str, value: object) -> Variant:
    """A value of the domain as a variant that is sure to marshal."""
    return Variant(signature, _CONVERTERS[signature](value))


def details(**entries: tuple[str, object]) -> dict[str, Variant]:
    """An `a{sv}` from `name=(signature, value)`."""
    return {name: variant(signature, value) for name, (signature, value) in entries.items()}
