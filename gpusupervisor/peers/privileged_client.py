"""What /proc hides of engines and of the processes that hold VRAM: looked up in the background, by ourselves where we
may, else by the reader.

Nothing waits for it: a look finds what is known, and asks for the rest to be there at a later one. A process is
asked about again only for the port that it may open later, with a growing pause and then no more; a reader that cannot
answer is called with a growing pause, too.
"""

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dbus_fast import Message, MessageType, Variant
from dbus_fast.aio import MessageBus

from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.engines.configuration_files import sources_of
from gpusupervisor.foreign_text import harmless
from gpusupervisor.peers.privileged_call import NOBODY_THERE, PATIENCE, READER
from gpusupervisor.peers.privileged_call import ask as ask_peer
from gpusupervisor.processes.identity import OwnNetwork, ProcessKey
from gpusupervisor.processes.inside import read_inside
from gpusupervisor.processes.privileged import PrivilegedFacts, Sight
from gpusupervisor.processes.settings_files import SettingsFile

AGAIN_AFTER = 2 * MICROSECONDS
"""A process without a port is asked about again after this long, then after twice as long, and so on."""
ASKED_AT_MOST = 9
"""The last time about 17 minutes after the first."""
FORGOTTEN_AFTER = 60 * MICROSECONDS
"""After a pause this long in which it was not of interest, a process that was refused is asked about anew as soon as it
is of interest again continually, as it may hold VRAM by now. Routine looks every few minutes ask for nothing, or the
reader would be started for each."""
RETRY_AFTER = 10 * MICROSECONDS
LONGEST_RETRY = 600 * MICROSECONDS
REMEMBERED = 1024
AT_ONCE = 64
"""Processes of one question."""
MAX_TEXT = 4096

_LOG = logging.getLogger(__name__)


class NoAnswer(Exception):  # noqa: N818  (it names a state)
    """The reader did not answer; `sight` says how."""

    def __init__(self, sight: Sight) -> None:
        super().__init__(sight.detail)
        self.sight = sight


@dataclass(slots=True)
class _Entry:
    """What is known of one process. Instants are microseconds of the domain clock."""

    due_at: int
    wanted_at: int = 0
    facts: PrivilegedFacts | None = None
    asked: int = 0
    was_forgotten: bool = False
    """The last look came after a pause of `FORGOTTEN_AFTER`."""

    def answered(self, facts: PrivilegedFacts | None, now: int) -> None:
        """Take an answer in. None: not now; what was known stays."""
        self.facts = facts or self.facts
        self.due_at = now + (AGAIN_AFTER << self.asked)
        self.asked += 1

    def is_due(self, now: int) -> bool:
        complete = self.facts is not None and bool(self.facts.listening_ports)
        is_of_interest = not complete and not self.was_forgotten
        return is_of_interest and self.asked < ASKED_AT_MOST and now >= self.due_at


@dataclass(slots=True)
class _Reader:
    """The state of the reader: what its last answer was, and when it may be called again."""

    sight: Sight = field(default_factory=lambda: Sight("unasked"))
    failures: int = 0
    resume_at: int = 0

    def failed(self, sight: Sight, now: int) -> None:
        self.sight = sight
        self.resume_at = now + min(RETRY_AFTER << min(self.failures, 16), LONGEST_RETRY)
        self.failures += 1


class PrivilegedClient:
    """The supervisor's `PrivilegedReader`. `facts` is called in the thread that reads processes, the rest in ours."""

    def __init__(self, clock: Clock, proc_root: Path = Path("/proc")) -> None:
        self._clock = clock
        self._root = proc_root
        self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()
        self._lock = threading.Lock()
        """Guards the two below."""
        self._entries: OrderedDict[ProcessKey, _Entry] = OrderedDict()
        self._reader = _Reader()

    def facts(self, key: ProcessKey) -> PrivilegedFacts | None:
        """See `PrivilegedReader`."""
        now = self._clock.now()
        with self._lock:
            entry = self._entries.get(key)
            forgotten = entry is not None and entry.facts is None and now - entry.wanted_at > FORGOTTEN_AFTER
            if entry is None or (entry.was_forgotten and not forgotten):
                entry = self._entries[key] = _Entry(now)
            entry.wanted_at, entry.was_forgotten = now, forgotten
            self._entries.move_to_end(key)
            if len(self._entries) > REMEMBERED:
                self._entries.popitem(last=False)
            due = entry.is_due(now) and now >= self._reader.resume_at
        if due:
            self._loop.call_soon_threadsafe(self._wanted.set)
        return entry.facts

    def sight(self) -> Sight:
        """See `PrivilegedReader`."""
        with self._lock:
            return self._reader.sight

    async def look_up_for_ever(self, bus: MessageBus, variables: Callable[[], frozenset[str]]) -> None:
        """Find out what is wanted, whenever something is. variables: the ones that may be read by ourselves."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            now = self._clock.now()
            with self._lock:
                due = [key for key, entry in self._entries.items() if entry.is_due(now) and not entry.was_forgotten][
                    :AT_ONCE
                ]
            hidden = await asyncio.to_thread(self._read_ourselves, due, variables())
            if hidden:
                await self._ask_reader(bus, hidden)

    def _read_ourselves(self, keys: Sequence[ProcessKey], variables: frozenset[str]) -> list[ProcessKey]:
        """Read what our user may; returns the processes that are hidden from us."""
        hidden = []
        for key in keys:
            try:
                found = read_inside(self._root, key, variables, sources=sources_of)
            except OSError:
                hidden.append(key)
            else:
                self._take({key: found})
        return hidden

    async def _ask_reader(self, bus: MessageBus, keys: Sequence[ProcessKey]) -> None:
        try:
            found = await ask(bus, keys)
        except NoAnswer as problem:
            with self._lock:
                news = self._reader.sight != problem.sight
                self._reader.failed(problem.sight, self._clock.now())
            if news:
                _LOG.debug("the reader told nothing of processes: %s", problem)  # its check judges that
            return
        self._take({key: found.get(key) for key in keys})
        with self._lock:
            self._reader = _Reader(Sight("ok"))

    def _take(self, answers: Mapping[ProcessKey, PrivilegedFacts | None]) -> None:
        now = self._clock.now()
        with self._lock:
            for key, facts in answers.items():
                if key in self._entries:
                    self._entries[key].answered(facts, now)


async def ask(bus: MessageBus, keys: Sequence[ProcessKey]) -> dict[ProcessKey, PrivilegedFacts]:
    """Ask the reader; processes that it does not tell of are left out. Raises NoAnswer."""
    answer = await ask_peer(bus, READER, "Facts", "a(ut)", [[[key.pid, key.start_time] for key in keys]])
    if answer is None:
        raise NoAnswer(Sight("failing", f"no answer within {PATIENCE:g} s"))
    if answer.message_type is not MessageType.METHOD_RETURN or answer.signature != "aa{sv}":
        raise NoAnswer(_complaint(answer))
    return dict(found for entry in answer.body[0] if (found := _parse(entry)) is not None)


def _complaint(answer: Message) -> Sight:
    """Why there is no answer, from the error that came in its place."""
    name = answer.error_name or ""
    text = harmless(str(answer.body[0])).rstrip(".") if answer.signature.startswith("s") else name
    if name.endswith(NOBODY_THERE):
        return Sight("missing", text)
    return Sight("refused" if name.endswith("AccessDenied") else "failing", text or "it answered nonsense")


def _parse(entry: Mapping[str, Variant]) -> tuple[ProcessKey, PrivilegedFacts] | None:
    """One process's facts; None for a refusal."""
    told: dict[str, Any] = {name: value.value for name, value in entry.items()}
    if "refused" in told or not {"pid", "start_time", "executable", "working_directory"} <= told.keys():
        return None
    facts = PrivilegedFacts(
        executable=str(told["executable"])[:MAX_TEXT],
        working_directory=str(told["working_directory"])[:MAX_TEXT],
        listening_ports=tuple(told.get("listening_ports", ())),
        environment=tuple(sorted(told.get("environment", {}).items())),
        listens_elsewhere=bool(told.get("listens_elsewhere", False)),
        configuration=tuple(
            SettingsFile(path[:MAX_TEXT], readable, tuple(sorted(values.items())))
            for path, readable, values in told.get("configuration", ())
        ),
        network=_network(told),
        has_opened_gpu=bool(told.get("has_opened_gpu", False)),
    )
    return ProcessKey(told["pid"], told["start_time"]), facts


def _network(told: Mapping[str, Any]) -> OwnNetwork | None:
    """The process's own network; None where it has the machine's."""
    if "network_ports" not in told:
        return None
    addresses = tuple(str(address)[:MAX_TEXT] for address in told.get("network_addresses", ()))
    return OwnNetwork(addresses, tuple(told["network_ports"]))
