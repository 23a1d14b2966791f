"""One call of the helper, with its errors as ours."""

from collections.abc import Mapping, Sequence

from dbus_fast import Message, MessageFlag, MessageType
from dbus_fast.aio import MessageBus

from gpusupervisor.bus.connection import answer_of
from gpusupervisor.bus.names import ERROR_PREFIX, HELPER_NAME, HELPER_PATH
from gpusupervisor.errors import Busy, GpuUnavailable, SupervisorError
from gpusupervisor.foreign_text import harmless

PATIENCE = 45.0
"""Seconds for an answer: the helper may have to start, and the driver to be asked several times."""
ATTEMPTS = 2
"""One more when the helper was just about to end."""
NOBODY_THERE = ("ServiceUnknown", "NameHasNoOwner", "Spawn.ServiceNotFound", "UnitMasked", "NoSuchUnit")
"""Last parts of the errors by which the bus and systemd say that there is no helper."""
LONGEST_TEXT = 4096
"""Characters of an error that is passed on."""
MISSING = "the helper is not there (systemctl status gpusupervisor-helper)"

_ERRORS: Mapping[str, type[SupervisorError]] = {
    f"{ERROR_PREFIX}{error.code}": error for error in SupervisorError.__subclasses__() if "code" in vars(error)
}


async def call_helper(
    bus: MessageBus, member: str, signature: str, body: Sequence[object], answer: str, *, start_helper: bool = True
) -> Message:
    """The reply. Raises the helper's error as ours, GpuUnavailable when there is no helper that answers.

    answer: the reply's signature. start_helper: whether the bus may start it.
    """
    reply = await ask_helper(bus, member, signature, body, start_helper=start_helper)
    if reply is None:
        raise GpuUnavailable(f"the helper did not answer within {PATIENCE:g} s")
    if reply.message_type is not MessageType.METHOD_RETURN or reply.signature != answer:
        raise _failure(reply)
    return reply


async def ask_helper(
    bus: MessageBus, member: str, signature: str, body: Sequence[object], *, start_helper: bool = True
) -> Message | None:
    """The reply, an error too; None when there is none in time, or the bus is gone."""
    flags = MessageFlag.NONE if start_helper else MessageFlag.NO_AUTOSTART
    reply: Message | None = None
    for _ in range(ATTEMPTS):
        question = Message(
            HELPER_NAME, HELPER_PATH, HELPER_NAME, member, signature=signature, body=list(body), flags=flags
        )
        reply = await answer_of(bus, question, PATIENCE)
        if reply is None or reply.error_name != f"{ERROR_PREFIX}{Busy.code}":
            break
    return reply


def _failure(reply: Message) -> SupervisorError:
    """The helper's error as ours."""
    name = reply.error_name or ""
    text = harmless(str(reply.body[0]), LONGEST_TEXT).rstrip(".") if reply.signature.startswith("s") else name
    if name in _ERRORS:
        return _ERRORS[name](text)
    if name.endswith(NOBODY_THERE):
        return GpuUnavailable(MISSING)
    return GpuUnavailable(f"the helper failed: {text or 'it answered nonsense'}")
