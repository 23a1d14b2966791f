"""What is known of the service at the moment, kept up by its signals. No I/O."""

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpusupervisor.cli import shapes, signals
from gpusupervisor.cli.client import BUS_NAME, MANAGER, ROOT, Objects, Signal
from gpusupervisor.cli.screens.memory import holders
from gpusupervisor.cli.text import safe
from gpusupervisor.cli.top.trace import Trace

TENANT, GPU, HEALTH = f"{BUS_NAME}.Tenant", f"{BUS_NAME}.Gpu", f"{BUS_NAME}.Health"
FANS, PROFILE, ENGINE, JOB = f"{BUS_NAME}.Fans", f"{BUS_NAME}.Profile", f"{BUS_NAME}.Engine", f"{BUS_NAME}.Job"
TELEMETRY_PATH = f"{ROOT}/telemetry"
MOST_EVENTS = 500
MOST_NUMBERS = 1000
_STARTING: shapes.Shape = {
    "version": "", "automatic": True, "status": "", "driver": "starting", "driver_version": "",
}  # fmt: skip
_UNCHECKED: shapes.Shape = {"state": "degraded", "summary": "nothing is checked yet", "checks": []}
_TOLD = {
    "ReleasePlanned", "ReleaseStarted", "ReleaseStep", "ReleaseFinished", "Alert", "DriftDetected", "DriftRepaired",
    "DriftContested", "DriftEnded", "TrialEnded", "Finished",
}  # fmt: skip

Of = tuple[str, str]
"""An object's path, and one of its interfaces."""
Figure = tuple[str, str]
"""What a trace is of: UUID of a GPU and nothing, or nothing and the id of a tenant."""


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that the service did or found."""

    at: int
    """Microseconds of realtime."""
    told: str
    """One line, safe."""


def now() -> int:
    """Microseconds of realtime."""
    return time.time_ns() // 1000


class Board:
    """Everything the screen shows."""

    def __init__(self) -> None:
        self.revision = 0
        """Another one whenever something is different."""
        self.gone = ""
        """Why the service cannot be heard; empty while it can."""
        self.events: deque[Happening] = deque(maxlen=MOST_EVENTS)
        self.outdated: dict[Of, None] = {}
        """Whose lists have changed and were not sent: the longest ago first."""
        self.traces: dict[Figure, Trace] = {}
        self.numbers: dict[tuple[str, int], int] = {}
        """Of holders by name and pid, in the order they were met: who has one keeps its colour."""
        self.warm_plan: list[shapes.Shape] | None = None
        self.began = now()
        self._manager: dict[str, Any] = {}
        self._objects: Objects = {}
        self._shapes: dict[Of, shapes.Shape] = {}

    # --- What comes in ---

    def take_objects(self, objects: Objects) -> None:
        """All objects anew."""
        self._objects = objects
        self._shapes.clear()
        self.outdated.clear()
        self._changed()

    def take_manager(self, properties: Mapping[str, Any]) -> None:
        """The manager's properties."""
        self._manager = dict(properties)
        self._changed()

    def take_properties(self, of: Of, properties: Mapping[str, Any]) -> None:
        """All properties of one interface."""
        path, interface = of
        if path in self._objects:
            self._objects[path][interface] = dict(properties)
        self._shapes.pop(of, None)
        self.outdated.pop(of, None)
        self._changed()

    def take_signal(self, signal: Signal) -> None:
        """Whatever the service sends."""
        match signal.member, signal.body:
            case "PropertiesChanged", [interface, changed, invalidated]:
                self._properties_changed((signal.path, interface), changed, invalidated)
            case "InterfacesAdded", [path, interfaces]:
                self._objects.setdefault(path, {}).update(interfaces)
                self._drop(path, interfaces)
            case "InterfacesRemoved", [path, names]:
                for name in names:
                    self._objects.get(path, {}).pop(name, None)
                self._drop(path, names)
                if not self._objects.get(path):
                    self._objects.pop(path, None)
            case member, body if member in _TOLD:
                self.tell(signals.line(signal.path, member, body))
            case _:
                return
        self._changed()

    def tell(self, line: str) -> None:
        """Something has happened."""
        self.events.append(Happening(now(), line))
        self._changed()

    def recall(self, events: Iterable[Happening]) -> None:
        """What happened before we looked, the oldest first."""
        known = list(self.events)
        self.events.clear()
        self.events.extend([*(each for each in events if each.at < self.began), *known])
        self._changed()

    def lose(self, why: str) -> None:
        """The service cannot be heard any more; what is shown is as it was."""
        self.gone = why
        self._changed()

    def regain(self) -> None:
        """It can be heard again."""
        self.gone = ""
        self._changed()

    def note_figures(self) -> None:
        """Write down what is held now, for the sparklines."""
        at = now()
        gpus = {} if self.gone else {gpu["uuid"]: gpu["memory_used"] for gpu in self.gpus}
        held = {} if self.gone else {tenant["id"]: tenant["holding"] for tenant in self.tenants}
        for uuid, used in gpus.items():
            self.trace((uuid, "")).note(at, used)
        for name, holding in held.items():
            if holding or ("", name) in self.traces:
                self.trace(("", name)).note(at, holding)
        for (uuid, name), trace in self.traces.items():
            if uuid not in gpus and name not in held:
                trace.note(at, None)

    def seed(self, figure: Figure, points: Sequence[Sequence[int]]) -> None:
        """What the service remembers of a figure."""
        self.trace(figure).seed(points)
        self._changed()

    def take_warm_plan(self, plan: list[shapes.Shape]) -> None:
        """Which models are in RAM."""
        self.warm_plan = plan
        self._changed()

    def _properties_changed(self, of: Of, changed: Mapping[str, Any], invalidated: Sequence[str]) -> None:
        path, interface = of
        if interface == MANAGER:
            self._manager.update(changed)
            return
        if interface not in self._objects.get(path, {}):
            return
        before = self._objects[path][interface]
        self._tell_of(interface, before, changed)
        before.update(changed)
        self._shapes.pop(of, None)
        if invalidated or interface == TENANT:  # a tenant's evidence is not signalled at all
            self.outdated.setdefault(of)

    def _tell_of(self, interface: str, before: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
        """What is worth a line among changed properties."""
        if interface == TENANT:
            name = safe(before["Id"])
            if changed.get("Activity", before["Activity"]) != before["Activity"]:
                reason = changed.get("ActivityReason", before["ActivityReason"])
                self.tell(f"{name} is {safe(changed['Activity'])}: {safe(reason)}")
            if changed.get("Starved", False) and not before["Starved"]:
                self.tell(f"{name} is starved: {safe(changed.get('StarvedReason', before['StarvedReason']))}")
        elif interface == HEALTH and changed.get("Summary", before["Summary"]) != before["Summary"]:
            self.tell(f"health: {safe(changed['Summary'])}")
        elif interface == GPU and changed.get("State", before["State"]) != before["State"]:
            detail = changed.get("StateDetail", before["StateDetail"])
            self.tell(f"{safe(before['Name'])} is {safe(changed['State'])}" + (f": {safe(detail)}" if detail else ""))

    def _drop(self, path: str, interfaces: Iterable[str]) -> None:
        for interface in interfaces:
            self._shapes.pop((path, interface), None)
            self.outdated.pop((path, interface), None)

    def _changed(self) -> None:
        self.revision += 1

    # --- What is known ---

    @property
    def objects(self) -> Objects:
        """As they came."""
        return self._objects

    @property
    def remembers(self) -> bool:
        """Whether the service has telemetry."""
        return TELEMETRY_PATH in self._objects

    def paths(self, interface: str) -> list[str]:
        """Of all objects that have an interface."""
        return sorted(path for path, interfaces in self._objects.items() if interface in interfaces)

    def path_of_tenant(self, name: str) -> str:
        """Empty when there is no such tenant."""
        return next((path for path in self.paths(TENANT) if self._objects[path][TENANT]["Id"] == name), "")

    @property
    def status(self) -> shapes.Shape:
        """The manager's properties and health, as the head of `status` needs them, with the checks in its summary."""
        health = {**self.health, "checks": []}
        if health["state"] != "ok":
            health["summary"] = f"{health['state']}: {health['summary']}"
        return {**_STARTING, **shapes.properties(self._manager), "health": health}

    @property
    def gpus(self) -> list[shapes.Shape]:
        """Every GPU."""
        return self._each(GPU)

    @property
    def tenants(self) -> list[shapes.Shape]:
        """Every tenant."""
        return self._each(TENANT)

    @property
    def engines(self) -> list[shapes.Shape]:
        """Every engine."""
        return self._each(ENGINE)

    @property
    def health(self) -> shapes.Shape:
        """State, summary and checks."""
        return next(iter(self._each(HEALTH)), _UNCHECKED)

    @property
    def jobs(self) -> list[shapes.Shape]:
        """Every job, the newest first."""
        return sorted(shapes.jobs(self._objects), key=lambda job: -int(job["id"]))

    @property
    def fans(self) -> list[shapes.Shape]:
        """The fans of every GPU."""
        return shapes.fans(self._objects)

    @property
    def profiles(self) -> list[shapes.Shape]:
        """The profile of every GPU."""
        return shapes.profiles(self._objects)

    def _each(self, interface: str) -> list[shapes.Shape]:
        """Shapes stay the same objects as long as nothing of them has changed."""
        found = []
        for path in self.paths(interface):
            of = (path, interface)
            if of not in self._shapes:
                self._shapes[of] = shapes.properties(self._objects[path][interface])
            found.append(self._shapes[of])
        return found

    def cards_of(self, figure: Figure) -> list[str]:
        """UUIDs of the cards that a figure is about."""
        uuid, name = figure
        if uuid:
            return [uuid]
        return next((list(tenant["holdings"]) for tenant in self.tenants if tenant["id"] == name), [])

    def trace(self, figure: Figure) -> Trace:
        """The trace of a figure."""
        return self.traces.setdefault(figure, Trace())

    def number_holders(self) -> Mapping[tuple[str, int], int]:
        """Everybody who holds memory, or did, with the number that stays."""
        if len(self.numbers) > MOST_NUMBERS:  # of processes that have come and gone
            self.numbers.clear()
        for gpu in self.gpus:
            for holder in holders(gpu):
                self.numbers.setdefault((holder.name, holder.pid), len(self.numbers))
        return self.numbers
