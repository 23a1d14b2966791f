"""What callers ask for, checked in form: documents are data, and what a card takes of them is decided elsewhere."""

from collections.abc import Mapping, Sequence

from dbus_fast import Variant

from gpusupervisor.configuration.document import DocumentError, Table, parse_document
from gpusupervisor.configuration.layers import key_text
from gpusupervisor.errors import InvalidArgument
from gpusupervisor.foreign_text import harmless
from gpusupervisor.helper.profile.document import check_profile
from gpusupervisor.helper.values import FanSetting, Profile
from gpusupervisor.quantities import format_duration

OPTIONS = {"hysteresis": "u", "spin-down-delay": "t", "zero-rpm-below": "u"}
"""Of a curve, with their D-Bus types; the delay in microseconds."""


def profile_of(document: str) -> Profile:
    """A profile from its JSON. Raises InvalidArgument that says everything that is wrong with it."""
    try:
        table = parse_document("profile.json", document)
    except DocumentError as error:
        raise InvalidArgument(f"The profile {error}") from error
    return _checked(table, "The profile")


def fan_setting_of(
    fan: int, mode: str, percent: int, points: Sequence[Sequence[int]], options: Mapping[str, Variant]
) -> FanSetting:
    """A fan's setting, checked as one of a profile. percent: fixed; points and options: curve."""
    table: Table = {"mode": mode}
    if mode == "fixed":
        table["percent"] = percent
    if mode == "curve":
        table["points"] = [list(point) for point in points]
    for name, value in options.items():
        if OPTIONS.get(name) != value.signature:
            allowed = ", ".join(f"{option} ({signature})" for option, signature in OPTIONS.items())
            raise InvalidArgument(f"{harmless(name, 64)!r} of type {value.signature} is no option; allowed: {allowed}")
        table[name] = format_duration(value.value, accuracy=1) if name == "spin-down-delay" else value.value
    return _checked({"fans": {str(fan): table}}, "The setting").fans[fan]


def _checked(table: Table, what: str) -> Profile:
    profile, findings = check_profile(table)
    if findings:
        raise InvalidArgument(
            f"{what} cannot be used. " + "; ".join(f"{key_text(path)}: {message}" for path, message in findings)
        )
    return profile
