"""systemd's word on units that tenants run in: what they start with, and what they declare themselves to be.

Nothing waits for it: what is not known yet is there at a later look. systemd is asked when a unit is wanted first, and
again when it says that something has changed.
"""

import asyncio
import fnmatch
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from dbus_fast import Message, MessageType, Variant
from dbus_fast.aio import MessageBus

from gpusupervisor.bus.connection import DRIVER_NAME, answer_of, driver_call
from gpusupervisor.engines.configured import Unit
from gpusupervisor.tenants.declared import PREFIX, Variables
from gpusupervisor.unit_environment import environment_of
from gpusupervisor.unit_syntax import NO_EXPANSION, as_it_stands

NAME = "org.freedesktop.systemd1"
PATH = "/org/freedesktop/systemd1"
MANAGER = f"{NAME}.Manager"
UNIT = f"{NAME}.Unit"
SERVICE = f"{NAME}.Service"
PROPERTIES = "org.freedesktop.DBus.Properties"

PATIENCE = 10.0
"""Seconds for an answer of systemd."""
TOGETHER = 0.1
"""Seconds for which news are gathered: a start or a reload brings many."""
SETTLED = 3.0
"""Seconds after news until it is looked once more: a script has started its engine by then."""
ROUTINE = 300.0
"""Seconds until it is looked anyway: an environment file changes without a word."""
AT_MOST = 256
"""Units that are followed."""
MEMBERS = 64
LONGEST_VALUE = 256
"""Characters of a variable by which a unit declares something."""

_LOG = logging.getLogger(__name__)
_SIGNATURES: Mapping[tuple[str, str], str] = {
    (UNIT, "LoadState"): "s",
    (UNIT, "ActiveState"): "s",
    (UNIT, "FragmentPath"): "s",
    (UNIT, "DropInPaths"): "as",
    (UNIT, "NeedDaemonReload"): "b",
    (SERVICE, "MainPID"): "u",
    (SERVICE, "ControlGroup"): "s",
    (SERVICE, "ExecStart"): "a(sasbttttuii)",
    (SERVICE, "ExecStartEx"): "a(sasasttttuii)",
    (SERVICE, "Environment"): "as",
    (SERVICE, "EnvironmentFiles"): "a(sb)",
    (SERVICE, "PassEnvironment"): "as",
    (SERVICE, "UnsetEnvironment"): "as",
}
"""What may be asked of a unit. A property that is missing, or of another type, is as an empty one."""
_ASKED = tuple(key for key in _SIGNATURES if key != (UNIT, "LoadState"))

Shown = Callable[[], Awaitable[None]]


class Units(Protocol):
    """Who knows units."""

    @property
    def units(self) -> Mapping[str, Unit]:
        """By name: those that systemd has loaded, of the ones that are wanted. Replaced and never changed."""

    def want(self, patterns: frozenset[str]) -> None:
        """Follow the system units of these names (shell patterns) from now on."""

    def declared(self, present: frozenset[str]) -> Mapping[str, Variables]:
        """What units declare of themselves; the same mapping until that changes. present: units seen right now."""


class UnitClient:
    """Follows units."""

    def __init__(self, cgroup_root: Path = Path("/sys/fs/cgroup")) -> None:
        self.units: Mapping[str, Unit] = {}
        """See `Units`."""
        self._cgroup_root = cgroup_root
        self._patterns: frozenset[str] = frozenset()
        self._present: frozenset[str] = frozenset()
        self._declared: Mapping[str, Variables] = {}
        self._loaded_here: frozenset[str] = frozenset()
        """Units that systemd has forgotten, and was asked to read again because they have declared something."""
        self._paths: Mapping[str, str] = {}
        """By object path: the unit that is followed there."""
        self._news = asyncio.Event()
        self._bus: MessageBus | None = None
        self._owner = ""

    def want(self, patterns: frozenset[str]) -> None:
        """See `Units`."""
        if patterns != self._patterns:
            self._patterns = patterns
            self._news.set()

    def declared(self, present: frozenset[str]) -> Mapping[str, Variables]:
        """See `Units`."""
        if not present <= self._present:
            self._news.set()
        self._present = present
        return self._declared

    @property
    def _wanted(self) -> frozenset[str]:
        return self._patterns | self._present | self._declared.keys()

    async def follow_for_ever(self, bus: MessageBus, shown: Shown) -> None:
        """Keep up with systemd. shown: waits until what is known by then is published."""
        self._bus = bus
        bus.add_message_handler(self._take)
        try:
            for rule in (
                f"type='signal',sender='{NAME}',path='{PATH}',interface='{MANAGER}',member='Reloading'",
                f"type='signal',sender='{NAME}',path='{PATH}',interface='{MANAGER}',member='UnitNew'",
                f"type='signal',sender='{DRIVER_NAME}',member='NameOwnerChanged',arg0='{NAME}'",
            ):
                await self._tell_driver("AddMatch", rule)
            await self._subscribe()
            pause = ROUTINE
            while True:
                try:
                    async with asyncio.timeout(pause):
                        await self._news.wait()
                        await asyncio.sleep(TOGETHER)
                        pause = SETTLED
                except TimeoutError:
                    pause = ROUTINE
                self._news.clear()
                if await self._refresh():
                    await shown()
        finally:
            bus.remove_message_handler(self._take)

    def _take(self, message: Message) -> None:
        """A signal came; only the bus, and whoever has systemd's name, are believed."""
        if message.message_type is not MessageType.SIGNAL:
            return
        if message.sender == DRIVER_NAME and message.member == "NameOwnerChanged" and message.body[0] == NAME:
            self._owner = ""
            self._news.set()
        elif message.sender == self._owner and self._is_news(message):
            self._news.set()

    def _is_news(self, message: Message) -> bool:
        """Whether a signal of systemd's is about something that is followed."""
        match message.member, message.body:
            case "Reloading", [False]:
                return True
            case "UnitNew", [str(name), _]:
                return self._is_wanted(name) and name not in self._loaded_here
            case "PropertiesChanged", _:
                return message.path in self._paths
        return False

    def _is_wanted(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self._wanted)

    async def _subscribe(self) -> None:
        """Have systemd send its signals, and learn who it is."""
        reply = await self._call(PATH, MANAGER, "Subscribe")
        if reply is not None:
            self._owner = reply.sender or ""

    async def _refresh(self) -> bool:
        """Ask about everything that is wanted; whether anything has changed."""
        before = self.units, self._declared
        if not self._owner:
            await self._subscribe()
        listed = await self._list()
        if listed is None:
            return False
        listed += await self._load(sorted(self._declared.keys() - {name for name, _ in listed}))
        await self._follow_paths({path: name for name, path in listed})
        found = await asyncio.gather(*(self._look_at(name, path) for name, path in listed))
        self.units = {unit.name: unit for unit in found}
        self._note_declared()
        return (self.units, self._declared) != before

    async def _load(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """Name and path of those that still have files, though nothing of them runs."""
        self._loaded_here = frozenset(names)
        found = []
        for name in names:
            reply = await self._call(PATH, MANAGER, "LoadUnit", "s", [name])
            if reply is not None and reply.signature == "o":
                path = reply.body[0]
                if await self._get(path, UNIT, "LoadState") == "loaded":
                    found.append((name, path))
        return found

    def _note_declared(self) -> None:
        """Keep the mapping as it is unless something in it has changed."""
        declared = {name: unit.declares for name, unit in self.units.items() if unit.declares}
        if declared != self._declared:
            _LOG.info("units that declare themselves tenants: %s", ", ".join(sorted(declared)) or "none")
            self._declared = declared

    async def _list(self) -> list[tuple[str, str]] | None:
        """Name and path of every loaded unit that is wanted; None when systemd does not say."""
        if not self._wanted:
            return []
        body = [[], sorted(self._wanted)]
        reply = await self._call(PATH, MANAGER, "ListUnitsByPatterns", "asas", body)
        if reply is None or reply.signature != "a(ssssssouso)":
            return None
        loaded = [
            (entry[0], entry[6]) for entry in reply.body[0] if entry[2] == "loaded" and entry[0].endswith(".service")
        ]
        return sorted(loaded)[:AT_MOST]

    async def _follow_paths(self, paths: Mapping[str, str]) -> None:
        """Hear of changes of these units, and of no others."""
        for path in self._paths.keys() - paths.keys():
            await self._tell_driver("RemoveMatch", _changes_at(path))
        for path in paths.keys() - self._paths.keys():
            await self._tell_driver("AddMatch", _changes_at(path))
        self._paths = paths

    async def _look_at(self, name: str, path: str) -> Unit:
        values = await asyncio.gather(*(self._get(path, interface, member) for interface, member in _ASKED))
        told = {member: value for (_, member), value in zip(_ASKED, values, strict=True)}
        return await asyncio.to_thread(self._made, name, told)

    async def _get(self, path: str, interface: str, member: str) -> Any:  # noqa: ANN401  (a D-Bus value)
        """A property; None when it is not there or not what it should be."""
        reply = await self._call(path, PROPERTIES, "Get", "ss", [interface, member])
        value = reply.body[0] if reply is not None and reply.signature == "v" else None
        wanted = _SIGNATURES[interface, member]
        return value.value if isinstance(value, Variant) and value.signature == wanted else None

    def _made(self, name: str, told: Mapping[str, Any]) -> Unit:
        """The unit, with its files looked into."""
        fragment = told["FragmentPath"] or ""
        environment, unreadable = environment_of(
            name,
            told["Environment"] or (),
            [path for path in (fragment, *(told["DropInPaths"] or ())) if path],
            [(path, optional) for path, optional in told["EnvironmentFiles"] or ()],
            told["UnsetEnvironment"] or (),
        )
        return Unit(
            name=name,
            active=told["ActiveState"] in ("active", "reloading", "activating"),
            main_pid=told["MainPID"] or 0,
            members=self._members(told["ControlGroup"] or ""),
            commands=tuple(map(_command, told["ExecStartEx"] or told["ExecStart"] or ())),
            environment=environment,
            passed=frozenset(told["PassEnvironment"] or ()),
            unreadable=unreadable,
            needs_reload=bool(told["NeedDaemonReload"]),
            declares=_declared_by(told["Environment"] or ()),
            fragment=fragment,
        )

    def _members(self, cgroup: str) -> tuple[int, ...]:
        if not cgroup.strip("/") or ".." in cgroup.split("/"):
            return ()
        for root in (self._cgroup_root, self._cgroup_root / "unified", self._cgroup_root / "systemd"):
            try:
                text = (root / cgroup.strip("/") / "cgroup.procs").read_text()
            except OSError:
                continue
            return tuple(sorted(int(pid) for pid in text.split() if pid.isdigit()))[:MEMBERS]
        return ()

    async def _tell_driver(self, member: str, rule: str) -> None:
        if self._bus is not None:
            await answer_of(self._bus, driver_call(member, rule), PATIENCE)

    async def _call(
        self, path: str, interface: str, member: str, signature: str = "", body: Sequence[object] = ()
    ) -> Message | None:
        """The reply; None when systemd does not answer, or refuses."""
        if self._bus is None:
            return None
        question = Message(NAME, path, interface, member, signature=signature, body=list(body))
        reply = await answer_of(self._bus, question, PATIENCE)
        if reply is None or reply.message_type is not MessageType.METHOD_RETURN:
            _LOG.debug("systemd did not answer %s: %s", member, reply and reply.error_name)
            return None
        return reply


def _declared_by(assignments: Sequence[str]) -> Variables:
    """What root has written into the unit itself; not what its processes may have been started with."""
    pairs = (assignment.partition("=") for assignment in assignments)
    return {name: value[:LONGEST_VALUE] for name, _, value in pairs if name.startswith(PREFIX)}


def _changes_at(path: str) -> str:
    return f"type='signal',sender='{NAME}',path='{path}',interface='{PROPERTIES}',member='PropertiesChanged'"


def _command(told: Sequence[Any]) -> tuple[str, ...]:
    """A command as `expanded` takes it. told: of ExecStartEx, or of ExecStart where systemd has only that."""
    _program, arguments, flags = told[:3]
    return as_it_stands(arguments) if isinstance(flags, list) and NO_EXPANSION in flags else tuple(arguments)
