"""The object tree: who answers a call, what readers get, and which signals tell of changes.

dbus-fast's own service layer is not used, only its messages: that layer sends InterfacesAdded from the new
object's path (GDBus clients never see it), makes one failing getter fail every reader, hides the caller from the
method, knows no EmitsChangedSignal, and answers for paths that do not exist.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dbus_fast import DBusError, ErrorType, Message, MessageFlag, MessageType, Variant
from dbus_fast import introspection as intr

from gpusupervisor.bus import interfaces
from gpusupervisor.bus.connection import DRIVER_NAME, DRIVER_PATH, send
from gpusupervisor.bus.declare import Interface
from gpusupervisor.bus.gate import Gate
from gpusupervisor.bus.published import PublishedProperties, Values
from gpusupervisor.bus.replies import error_reply, stopping_reply
from gpusupervisor.bus.transport import BusConnection

_LOG = logging.getLogger(__name__)

SIGNAL_INTERVAL = 1.0
"""Seconds between two PropertiesChanged of one object at least."""
STANDARD = (interfaces.INTROSPECTABLE, interfaces.PEER, interfaces.PROPERTIES)


@dataclass(frozen=True, slots=True)
class Call:
    """Who calls, and on which object."""

    sender: str
    """Unique bus name."""
    path: str
    interactive: bool
    """The caller allows that a person is asked for a password."""


Handler = Callable[..., Awaitable[list[object]]]
"""Takes the `Call` and the arguments, returns the body of the reply."""
Handlers = Mapping[str, Handler]
Setters = Mapping[str, Callable[[Call, object], Awaitable[None]]]
"""By writable property: takes the `Call` and a value of the property's type; raises what the caller is answered."""


Admit = Callable[[Call], Awaitable[None]]
"""Returns when the caller may call at all; raises what it is answered instead."""


async def everybody(_call: Call) -> None:
    """Who may call is decided method by method."""


@dataclass(frozen=True, slots=True)
class Binding:
    """An interface on an object: its methods, and its properties when it has any."""

    interface: Interface
    handlers: Handlers = field(default_factory=dict)
    published: PublishedProperties | None = None
    setters: Setters = field(default_factory=dict)


class ObjectServer:
    """Exports objects on one connection, below one root that has the ObjectManager."""

    def __init__(
        self, bus: BusConnection, root: str, admit: Admit = everybody, guarded: frozenset[str] | None = None
    ) -> None:
        """admit: asked first at every call, those of the standard interfaces included.

        guarded: the methods about which the authority is asked, where anybody may call and so each user has its
        limits; None where the bus lets only those in whom we trust.
        """
        self._bus = bus
        self._root = root
        self._admit = admit
        self._objects: dict[str, dict[str, Binding]] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._flush_timer: asyncio.TimerHandle | None = None
        self._band = 0
        self._standard: Handlers = {
            "Introspect": self._introspect,
            "Ping": self._ping,
            "GetMachineId": self._machine_id,
            "Get": self._get,
            "GetAll": self._get_all,
            "Set": self._set,
            "GetManagedObjects": self._managed_objects,
        }
        self._gate = None if guarded is None else Gate(bus, self._begin, self._refuse, guarded)
        bus.add_message_handler(self._take)

    # Objects

    def export(
        self,
        path: str,
        interface: Interface,
        handlers: Handlers | None = None,
        values: Values | None = None,
        setters: Setters | None = None,
    ) -> None:
        """Put an interface on an object and tell the listeners of the ObjectManager, when it is below the root."""
        published = None
        if values is not None:
            published = PublishedProperties(interface, values, asyncio.get_running_loop().time() - SIGNAL_INTERVAL)
        self._objects.setdefault(path, {})[interface.name] = Binding(
            interface, handlers or {}, published, setters or {}
        )
        if self._is_managed(path):
            shown = published.shown if published else {}
            self.emit(self._root, interfaces.OBJECT_MANAGER, "InterfacesAdded", [path, {interface.name: shown}])

    def unexport(self, path: str) -> None:
        """Take an object away and tell the listeners of the ObjectManager."""
        gone = self._objects.pop(path)
        self.emit(self._root, interfaces.OBJECT_MANAGER, "InterfacesRemoved", [path, list(gone)])

    def _is_managed(self, path: str) -> bool:
        """Whether the ObjectManager tells of it: an object of a standard service may lie elsewhere."""
        return path.startswith(f"{self._root}/")

    def paths(self, prefix: str) -> set[str]:
        """The objects directly below a path."""
        return {path for path in self._objects if path.rpartition("/")[0] == prefix}

    def update(self, path: str, interface: Interface, values: Values) -> None:
        """Show new property values; `flush` tells the listeners."""
        published = self._objects[path][interface.name].published
        assert published is not None, f"{interface.name} was exported without properties"
        published.update(values)

    def flush(self, band: int) -> None:
        """Send what is worth a signal and due; what comes too soon after the last one is sent when its time comes."""
        self._band = band
        self._flush()

    def _flush(self) -> None:
        if self._flush_timer:
            self._flush_timer.cancel()
            self._flush_timer = None
        loop = asyncio.get_running_loop()
        waits = [self._send_changes(path, each, loop.time(), SIGNAL_INTERVAL) for path, each in self._published()]
        if later := [wait for wait in waits if wait > 0]:
            self._flush_timer = loop.call_later(min(later), self._flush)

    def flush_at_once(self, path: str) -> None:
        """Send what is worth a signal of one object though it may be too soon: what is told next builds on it."""
        now = asyncio.get_running_loop().time()
        for binding in self._objects[path].values():
            if binding.published:
                self._send_changes(path, binding.published, now, 0)

    def _published(self) -> Iterable[tuple[str, PublishedProperties]]:
        for path, bindings in self._objects.items():
            for binding in bindings.values():
                if binding.published:
                    yield path, binding.published

    def _send_changes(self, path: str, published: PublishedProperties, now: float, interval: float) -> float:
        """Seconds to wait until something can be sent; 0 when nothing is left to be said."""
        if not (changes := published.changes(self._band)):
            return 0
        if (wait := published.sent_at + interval - now) > 0:
            return wait
        body = [published.interface.name, changes.changed, changes.invalidated]
        self.emit(path, interfaces.PROPERTIES, "PropertiesChanged", body)
        published.mark_sent(now)
        return 0

    def emit(self, path: str, interface: Interface, member: str, body: Sequence[object]) -> None:
        """Broadcast a declared signal."""
        signature = interface.signal(member).signature
        send(self._bus, Message.new_signal(path, interface.name, member, signature, list(body)))

    async def served(self) -> None:
        """Wait until every call that has arrived is answered."""
        while self._calls:
            await asyncio.wait(self._calls)

    async def close(self) -> None:
        """End the calls that are being served, each with an error, and send nothing any more."""
        self._bus.remove_message_handler(self._take)
        if self._flush_timer:
            self._flush_timer.cancel()
        if self._gate:
            await self._gate.close()
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    # Calls

    def _take(self, message: Message) -> bool:
        """Every incoming message passes here; method calls are ours, each a task of its own."""
        if message.message_type is not MessageType.METHOD_CALL:
            return False
        if self._gate:
            self._gate.take(message)
        else:
            self._begin(message)
        return True

    def _begin(self, message: Message) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(self._serve(message))
        self._calls.add(task)
        task.add_done_callback(lambda done: self._finished(message, done))
        return task

    def _refuse(self, message: Message, problem: DBusError) -> None:
        self._reply(message, error_reply(message, problem))

    async def _serve(self, message: Message) -> None:
        interactive = bool(message.flags & MessageFlag.ALLOW_INTERACTIVE_AUTHORIZATION)
        call = Call(message.sender or "", message.path or "/", interactive)
        _LOG.debug("%s calls %s.%s on %s", call.sender, message.interface or "", message.member, call.path)
        await self._admit(call)
        handler, signature = self._find(message)
        body = await handler(call, *message.body)
        self._reply(message, Message.new_method_return(message, signature, body))

    def _finished(self, message: Message, task: "asyncio.Task[None]") -> None:
        self._calls.discard(task)
        if task.cancelled():
            self._reply(message, stopping_reply(message))
        elif problem := task.exception():
            self._reply(message, error_reply(message, problem))

    def _reply(self, message: Message, reply: Message) -> None:
        if not message.flags & MessageFlag.NO_REPLY_EXPECTED:
            send(self._bus, reply)

    def _find(self, message: Message) -> tuple[Handler, str]:
        """The handler of a call and the signature of its reply."""
        path, member = message.path or "/", message.member or ""
        bindings = self._bindings(path)
        if not bindings:
            raise DBusError(ErrorType.UNKNOWN_OBJECT, f"There is no object {path}")
        if message.interface and message.interface not in bindings:
            raise DBusError(ErrorType.UNKNOWN_INTERFACE, f"{path} has no interface {message.interface}")
        candidates = [bindings[message.interface]] if message.interface else list(bindings.values())
        for binding in candidates:
            if method := binding.interface.method(member):
                if message.signature != method.in_signature:
                    expected = f'{member} takes "{method.in_signature}", not "{message.signature}"'
                    raise DBusError(ErrorType.INVALID_ARGS, expected)
                return binding.handlers[member], method.out_signature
        raise DBusError(
            ErrorType.UNKNOWN_METHOD, f"{path} has no method {member} in {message.interface or 'any interface'}"
        )

    def _bindings(self, path: str) -> dict[str, Binding]:
        """The interfaces of a path, standard ones included; paths that only lead to objects can be introspected."""
        own = self._objects.get(path, {})
        if not own:
            leads_on = any(each.startswith(path.rstrip("/") + "/") for each in self._objects)
            return {each.name: Binding(each, self._standard) for each in STANDARD[:2]} if leads_on else {}
        standard = (*STANDARD, interfaces.OBJECT_MANAGER) if path == self._root else STANDARD
        return {**{each.name: Binding(each, self._standard) for each in standard}, **own}

    # The standard interfaces

    async def _introspect(self, call: Call) -> list[object]:
        below = call.path.rstrip("/") + "/"
        children = {path.removeprefix(below).split("/")[0] for path in self._objects if path.startswith(below)}
        node = intr.Node(interfaces=[each.interface.introspection() for each in self._bindings(call.path).values()])
        node.nodes = [intr.Node(name, is_root=False) for name in sorted(children)]
        return [node.tostring()]

    async def _ping(self, _call: Call) -> list[object]:
        return []

    async def _machine_id(self, _call: Call) -> list[object]:
        """The bus runs on this machine and has read the file already."""
        question = Message(
            destination=DRIVER_NAME, path=DRIVER_PATH, interface=interfaces.PEER.name, member="GetMachineId"
        )
        answer = await self._bus.call(question)
        if answer is None or answer.message_type is not MessageType.METHOD_RETURN:
            raise DBusError(ErrorType.FAILED, "The bus does not know the id of this machine")
        return list(answer.body)

    def _properties(self, path: str, interface: str) -> dict[str, Variant]:
        if interface and interface not in self._bindings(path):
            raise DBusError(ErrorType.UNKNOWN_INTERFACE, f"{path} has no interface {interface}")
        return {
            name: value
            for binding in self._objects[path].values()
            if binding.published and interface in {"", binding.interface.name}
            for name, value in binding.published.shown.items()
        }

    async def _get(self, call: Call, interface: str, name: str) -> list[object]:
        return [self._property(call.path, interface, name)]

    def _property(self, path: str, interface: str, name: str) -> Variant:
        properties = self._properties(path, interface)
        if name not in properties:
            raise DBusError(ErrorType.UNKNOWN_PROPERTY, f"{interface or path} has no property {name}")
        return properties[name]

    async def _get_all(self, call: Call, interface: str) -> list[object]:
        return [self._properties(call.path, interface)]

    async def _set(self, call: Call, interface: str, name: str, value: Variant) -> list[object]:
        self._property(call.path, interface, name)
        binding = self._bindings(call.path).get(interface)
        declared = binding.interface.property(name) if binding else None
        if binding is None or declared is None or not declared.writable:
            raise DBusError(ErrorType.PROPERTY_READ_ONLY, f"{name} is read-only: methods change things")
        if value.signature != declared.signature:
            raise DBusError(ErrorType.INVALID_ARGS, f'{name} is a "{declared.signature}", not a "{value.signature}"')
        await binding.setters[name](call, value.value)
        return []

    async def _managed_objects(self, _call: Call) -> list[object]:
        objects = {
            path: {name: binding.published.shown if binding.published else {} for name, binding in bindings.items()}
            for path, bindings in self._objects.items()
            if self._is_managed(path)
        }
        return [objects]
