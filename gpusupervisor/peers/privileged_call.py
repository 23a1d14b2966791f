"""Calls of the privileged services, with their errors as ours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dbus_fast import Message, MessageFlag, MessageType
from dbus_fast.aio import MessageBus

from gpusupervisor.bus.connection import answer_of
from gpusupervisor.bus.names import ERROR_PREFIX, HELPER_NAME, HELPER_PATH, READER_NAME, READER_PATH
from gpusupervisor.errors import Busy, GpuUnavailable, SupervisorError
from gpusupervisor.foreign_text import harmless

PATIENCE = 45.0
"""Seconds for an answer: the service may have to start, and the driver to be called several times."""
ATTEMPTS = 2
"""One more when the service was just about to exit."""
NOBODY_THERE = ("ServiceUnknown", "NameHasNoOwner", "Spawn.ServiceNotFound", "UnitMasked", "NoSuchUnit")
"""Last parts of the errors with which the bus and systemd say that there is no such service."""
LONGEST_TEXT = 4096
"""Characters of an error that is passed on."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A privileged service. Its interface is called as its bus name is."""

    title: str
    name: str
    path: str
    unit: str

    @property
    def missing(self) -> str:
        """The error text when it is not installed or cannot be started."""
        return f"{self.title} is not there (systemctl status {self.unit})"


HELPER = Peer("the helper", HELPER_NAME, HELPER_PATH, "gpusupervisor-helper")
READER = Peer("the reader", READER_NAME, READER_PATH, "gpusupervisor-reader")

_ERRORS: Mapping[str, type[SupervisorError]] = {
    f"{ERROR_PREFIX}{error.code}": error for error in SupervisorError.__subclasses__() if "code" in vars(error)
}


async def call(
    bus: MessageBus, peer: Peer, member: str, signature: str, body: Sequence[object], answer: str, *, start: bool = True
) -> Message:
    """Return the reply. Raises the service's error as ours, GpuUnavailable when no service answers.

    answer: the reply's signature. start: whether the bus may start the service.
    """
    reply = await ask(bus, peer, member, signature, body, start=start)
    if reply is None:
        raise GpuUnavailable(f"{peer.title} did not answer within {PATIENCE:g} s")
    if reply.message_type is not MessageType.METHOD_RETURN or reply.signature != answer:
        raise _failure(peer, reply)
    return reply


async def ask(
    bus: MessageBus, peer: Peer, member: str, signature: str, body: Sequence[object], *, start: bool = True
) -> Message | None:
    """Return the reply, which may be an error; None when there is none in time, or the bus is gone."""
    flags = MessageFlag.NONE if start else MessageFlag.NO_AUTOSTART
    reply: Message | None = None
    for _ in range(ATTEMPTS):
        question = Message(peer.name, peer.path, peer.name, member, signature=signature, body=list(body), flags=flags)
        reply = await answer_of(bus, question, PATIENCE)
        if reply is None or reply.error_name != f"{ERROR_PREFIX}{Busy.code}":
            break
    return reply


def _failure(peer: Peer, reply: Message) -> SupervisorError:
    """The service's error as ours."""
    name = reply.error_name or ""
    text = harmless(str(reply.body[0]), LONGEST_TEXT).rstrip(".") if reply.signature.startswith("s") else name
    if name in _ERRORS:
        return _ERRORS[name](text)
    if name.endswith(NOBODY_THERE):
        return GpuUnavailable(peer.missing)
    return GpuUnavailable(f"{peer.title} failed: {text or 'the answer could not be parsed'}")
