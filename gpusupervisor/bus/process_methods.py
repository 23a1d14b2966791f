"""The methods about processes: which tenant one would be, and what is known of one that holds VRAM."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from dbus_fast import Variant

from gpusupervisor.bus import names
from gpusupervisor.bus.admission import Admission
from gpusupervisor.bus.objects import Call, Handlers
from gpusupervisor.bus.views import process_view
from gpusupervisor.bus.wire import details, text, variant
from gpusupervisor.errors import InvalidArgument, NoSuchProcess
from gpusupervisor.processes.identity import ProcessIdentity, ProcessKey
from gpusupervisor.state import Controller, State
from gpusupervisor.tenants.census import Holder

MOST = 256
"""Processes in one question."""
LONGEST_TEXT = 4096
MOST_TEXTS = 256
MOST_TEXT = 64 * 1024
"""Characters of one process."""
_TEXTS = ("unit", "user_unit", "container", "executable")
_LISTS = ("command_line", "environment")


class ProcessMethods:
    """Handlers by interface."""

    def __init__(self, controller: Controller, admission: Admission, state: Callable[[], State]) -> None:
        self._controller = controller
        self._admission = admission
        self._state = state
        self._turn = asyncio.Lock()
        """Of recognising."""

    def manager(self) -> Handlers:
        """Of the root object."""
        return {"InspectProcess": self._inspect}

    def tenants(self) -> Handlers:
        """Of the collection of tenants."""
        return {"Recognise": self._recognise}

    async def _inspect(self, call: Call, pid: int) -> list[object]:
        async with self._admission.authorized(call, names.ACTION_INSPECT_PROCESS, pid=str(pid)):
            for holder in _holders(self._state()):
                if holder.pid == pid and holder.identity is not None:
                    return [_everything(holder, holder.identity)]
            raise NoSuchProcess(f"No process with the PID {pid} holds memory of a GPU that can be read")

    async def _recognise(self, _call: Call, processes: Sequence[Mapping[str, Variant]]) -> list[object]:
        if len(processes) > MOST:
            raise InvalidArgument(f"processes: at most {MOST} can be asked about at a time, not {len(processes)}")
        described = [_described(each) for each in processes]
        answers = []
        async with self._turn:
            for each in described:
                answers.append(self._answer(each))
                await asyncio.sleep(0)  # everybody else has a turn: one alone takes some 10 ms at worst
        return [answers]

    def _answer(self, process: ProcessIdentity) -> dict[str, Variant]:
        found = self._controller.recognise(process)
        if found is None:
            return {}
        return details(tenant=("s", found.tenant), recognised_by=("s", found.why), endpoint=("s", found.endpoint))


def _holders(state: State) -> Iterator[Holder]:
    for tenant in state.census.tenants.values():
        yield from tenant.holders
    for account in state.census.gpus.values():
        yield from account.unmanaged


def _everything(holder: Holder, identity: ProcessIdentity) -> dict[str, Variant]:
    return process_view(holder) | {
        "executable": variant("s", identity.executable),
        "command_line": variant("as", identity.placed_command_line),
        "working_directory": variant("s", identity.working_directory),
    }


def _described(process: Mapping[str, Variant]) -> ProcessIdentity:
    """The process as it is described; raises InvalidArgument."""
    for name in process:
        if name not in (*_TEXTS, *_LISTS):
            raise InvalidArgument(
                f"processes: there is no {text(name, 64)!r}; allowed: {', '.join((*_TEXTS, *_LISTS))}"
            )
    texts = {name: _text(name, process) for name in _TEXTS}
    lists = {name: _list(name, process) for name in _LISTS}
    if sum(map(len, (*texts.values(), *lists["command_line"], *lists["environment"]))) > MOST_TEXT:
        raise InvalidArgument(f"processes: one of them has more than {MOST_TEXT} characters")
    variables = (entry.partition("=") for entry in lists["environment"])
    return ProcessIdentity(
        key=ProcessKey(0, 0),
        parent_pid=0,
        uid=0,
        comm="",
        unit=texts["unit"],
        user_unit=texts["user_unit"],
        container=texts["container"],
        executable=texts["executable"],
        command_line=lists["command_line"],
        environment=tuple((name, value) for name, _, value in variables),
    )


def _text(name: str, process: Mapping[str, Variant]) -> str:
    given = process.get(name, Variant("s", ""))
    if given.signature != "s" or len(given.value) > LONGEST_TEXT:
        raise InvalidArgument(f"processes: {name} must be a text (s) of {LONGEST_TEXT} characters at most")
    return str(given.value)


def _list(name: str, process: Mapping[str, Variant]) -> tuple[str, ...]:
    given = process.get(name, Variant("as", []))
    if (
        given.signature != "as"
        or len(given.value) > MOST_TEXTS
        or any(len(text) > LONGEST_TEXT for text in given.value)
    ):
        raise InvalidArgument(
            f"processes: {name} must be texts (as), {MOST_TEXTS} of {LONGEST_TEXT} characters each at most"
        )
    return tuple(given.value)
