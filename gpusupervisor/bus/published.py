"""The properties of one interface of one object: what readers get, and what is worth a signal."""

from collections.abc import Mapping
from dataclasses import dataclass

from dbus_fast import Variant

from gpusupervisor.bus.declare import Interface, Property
from gpusupervisor.bus.wire import variant
from gpusupervisor.clock import UNKNOWN

Values = dict[str, object]
"""What an interface's properties are, by name."""

_GAUGES = frozenset({"used", "size"})
"""Of the dictionaries within a list: the entries that are bytes."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The body of one PropertiesChanged."""

    changed: dict[str, Variant]
    invalidated: list[str]


def moved(old: object, new: object, band: int) -> bool:
    """Is a gauge's change worth a signal? Values may be bytes, or mappings and lists that contain bytes."""
    if old == new:
        return False
    if isinstance(old, int) and isinstance(new, int):
        return abs(new - old) >= band or new in {0, UNKNOWN} or old == UNKNOWN
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return old.keys() != new.keys() or any(_entry_moved(key, old[key], new[key], band) for key in new)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) != len(new) or any(moved(a, b, band) for a, b in zip(old, new, strict=True))
    return True


def _entry_moved(key: str, old: object, new: object, band: int) -> bool:
    if isinstance(old, Variant) and isinstance(new, Variant):
        return moved(old.value, new.value, band) if key in _GAUGES else old != new
    return moved(old, new, band)


def variants(interface: Interface, values: Mapping[str, object]) -> dict[str, Variant]:
    """All properties of an interface, as `a{sv}`."""
    return {each.name: variant(each.signature, values[each.name]) for each in interface.properties}


class PublishedProperties:
    """Shown to readers at once; sent to listeners when it matters."""

    def __init__(self, interface: Interface, values: Mapping[str, object], sent_at: float) -> None:
        self.interface = interface
        self.sent_at = sent_at
        """Seconds of the event loop's clock."""
        self._values: dict[str, object] = {}
        self.shown: dict[str, Variant] = {}
        self.update(values)
        self._sent = dict(self.shown)

    def update(self, values: Mapping[str, object]) -> None:
        """Show new values; `values` has exactly the declared properties."""
        if values == self._values:
            return
        for declared in self.interface.properties:
            value = values[declared.name]
            if declared.name not in self._values or self._values[declared.name] != value:
                self.shown[declared.name] = variant(declared.signature, value)
        self._values = dict(values)

    def changes(self, band: int) -> Changes | None:
        """What a signal would say now; None while nothing is worth one.

        When something is, all that differs goes with it: gauges that moved little cost nothing more then.
        """
        differing = [declared for declared in self.interface.properties if self._differs(declared)]
        if not any(self._matters(declared, band) for declared in differing):
            return None
        return Changes(
            {each.name: self.shown[each.name] for each in differing if each.emits == "true"},
            [each.name for each in differing if each.emits == "invalidates"],
        )

    def mark_sent(self, now: float) -> None:
        """Listeners know what is shown now."""
        self._sent = dict(self.shown)
        self.sent_at = now

    def _differs(self, declared: Property) -> bool:
        known = declared.emits in {"true", "invalidates"}
        return known and self._sent[declared.name] != self.shown[declared.name]

    def _matters(self, declared: Property, band: int) -> bool:
        if not declared.gauge:
            return True
        return moved(self._sent[declared.name].value, self.shown[declared.name].value, band)
