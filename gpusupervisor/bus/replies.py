"""Errors as callers see them: the domain's under our own names, the standard ones, and never a traceback."""

from dbus_fast import DBusError, ErrorType, Message

from gpusupervisor.bus.names import ERROR_PREFIX
from gpusupervisor.bus.wire import ERROR_LIMIT, sentence, text
from gpusupervisor.errors import SupervisorError
from gpusupervisor.journal.entry import write
from gpusupervisor.journal.messages.service import Defect


def error_reply(call: Message, problem: BaseException) -> Message:
    """The error message that answers a call which ended with an exception."""
    match problem:
        case SupervisorError():
            return Message.new_error(call, ERROR_PREFIX + problem.code, sentence(text(str(problem), ERROR_LIMIT)))
        case DBusError():
            return Message.new_error(call, problem.type, sentence(text(problem.text, ERROR_LIMIT)))
        case _:
            write(Defect(f"{call.interface}.{call.member}"), error=problem)
            message = (
                f"{call.member} failed inside gpusupervisor; its journal says why (journalctl -u 'gpusupervisor*')."
            )
            return Message.new_error(call, ErrorType.FAILED, message)


def stopping_reply(call: Message) -> Message:
    """The error message that answers a call which was cancelled."""
    return Message.new_error(call, ErrorType.FAILED, f"{call.member} was cancelled: the service is stopping.")
