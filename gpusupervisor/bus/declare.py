"""How an interface is declared: a table of its members, from which it is served and introspected."""

from dataclasses import dataclass
from typing import Literal

from dbus_fast import ArgDirection, PropertyAccess
from dbus_fast import introspection as intr

Emits = Literal["true", "invalidates", "const", "false"]
"""The values of the annotation org.freedesktop.DBus.Property.EmitsChangedSignal."""
EMITS_CHANGED_SIGNAL = "org.freedesktop.DBus.Property.EmitsChangedSignal"


@dataclass(frozen=True, slots=True)
class Property:
    """A property; read-only unless it says otherwise, for what changes something is a method."""

    name: str
    signature: str
    emits: Emits = "true"
    gauge: bool = False
    """Bytes that move all the time: small moves send no signal by themselves."""
    writable: bool = False

    def introspection(self) -> intr.Property:
        """What clients are told of it."""
        annotations: dict[str, str] = {} if self.emits == "true" else {EMITS_CHANGED_SIGNAL: self.emits}
        access = PropertyAccess.READWRITE if self.writable else PropertyAccess.READ
        return intr.Property(self.name, self.signature, access, annotations)


def method(name: str, inputs: str = "", outputs: str = "") -> intr.Method:
    """A method; arguments as "name:signature", separated by spaces."""
    return intr.Method(name, _arguments(inputs, ArgDirection.IN), _arguments(outputs, ArgDirection.OUT))


def signal(name: str, arguments: str) -> intr.Signal:
    """A signal; arguments as "name:signature", separated by spaces."""
    return intr.Signal(name, _arguments(arguments, None))


def _arguments(declared: str, direction: ArgDirection | None) -> list[intr.Arg]:
    pairs = (argument.split(":") for argument in declared.split())
    return [intr.Arg(signature, direction, name) for name, signature in pairs]


@dataclass(frozen=True)
class Interface:
    """Everything an interface has."""

    name: str
    methods: tuple[intr.Method, ...] = ()
    properties: tuple[Property, ...] = ()
    signals: tuple[intr.Signal, ...] = ()

    def introspection(self) -> intr.Interface:
        """What clients are told of it."""
        properties = [declared.introspection() for declared in self.properties]
        return intr.Interface(self.name, list(self.methods), list(self.signals), properties)

    def method(self, name: str) -> intr.Method | None:
        """The method of that name."""
        return next((declared for declared in self.methods if declared.name == name), None)

    def property(self, name: str) -> Property | None:
        """The property of that name."""
        return next((declared for declared in self.properties if declared.name == name), None)

    def signal(self, name: str) -> intr.Signal:
        """The signal of that name; it must be declared."""
        return next(declared for declared in self.signals if declared.name == name)
