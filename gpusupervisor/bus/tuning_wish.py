"""The options of Autotune, checked in form: what of them can be done is decided elsewhere."""

from collections.abc import Mapping
from typing import Any

from dbus_fast import Variant

from gpusupervisor.bus.wire import unknown_option
from gpusupervisor.controls import TuningWish
from gpusupervisor.errors import InvalidArgument

OPTIONS = {"model": "s", "steps": "u", "tokens": "u", "tolerance": "u", "clock-offsets": "ai"}
"""With their D-Bus types."""
LONGEST_NAME = 256


def tuning_wish(engine: str, options: Mapping[str, Variant]) -> TuningWish:
    """What is asked for. Raises InvalidArgument that names what is allowed."""
    for name, value in options.items():
        if OPTIONS.get(name) != value.signature:
            allowed = ", ".join(f"{option} ({signature})" for option, signature in OPTIONS.items())
            raise unknown_option(name, value, allowed)
    given: dict[str, Any] = {name: value.value for name, value in options.items()}
    if "clock-offsets" in given:
        given["offsets"] = tuple(given.pop("clock-offsets"))
    wish = TuningWish(engine, **given)
    for what, name in (("engine", wish.engine), ("model", wish.model)):
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise InvalidArgument(f"{what} must be at most {LONGEST_NAME} printable characters")
    return wish
