"""Published states for what is learned and noted."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpusupervisor.arbitration.assess import assess
from gpusupervisor.arbitration.compose import compose
from gpusupervisor.arbitration.history import History
from gpusupervisor.arbitration.learned import LearnedFacts
from gpusupervisor.arbitration.reservations import ReservationBook
from gpusupervisor.processes.identity import ProcessIdentity, ProcessKey
from gpusupervisor.state import State
from gpusupervisor.tenants.activity.verdict import ActivityState
from gpusupervisor.tenants.census import Holder
from tests.arbitration.builders import CARD
from tests.arbitration.seen import card, definition, doing, process, seen

PROGRAM = ("/opt/comfyui/python", "main.py", "--lowvram", "--port=8188", "--listen", "0.0.0.0")


def running(held: float | None, command: tuple[str, ...] = PROGRAM, tenant: str = "app", **more: Any) -> Holder:
    """A process of a tenant that runs a program."""
    identity = ProcessIdentity(ProcessKey(7, 1), 1, 1000, "python", executable=command[0], command_line=command)
    return replace(process(7, held, tenant), identity=identity, **more)


def state(
    activity: ActivityState = "busy",
    held: float | None = 8,
    *,
    free: float = 10,
    learned: LearnedFacts | None = None,
    holders: tuple[Holder, ...] | None = None,
    more: Mapping[str, ActivityState] | None = None,
    asleep: bool = False,
    attribution_problem: str = "",
    **values: Any,
) -> State:
    """One card, and a tenant "app" that does something with it."""
    activities = {"app": doing(activity), **{name: doing(word) for name, word in (more or {}).items()}}
    gpu = card(free, attribution_problem=attribution_problem)
    if asleep:
        gpu = replace(gpu, state="asleep", memory=None)
    if holders is None:
        holders = (running(held),) if activity != "absent" else ()
    what = seen(*holders, tenants=activities, definitions={"app": definition("app", **values)}, cards=(gpu,))
    situation = compose(what, frozenset(), History(learned), ReservationBook(0), 0)
    return State(
        sample=what.sample, census=what.census, situation=situation, definitions=what.definitions,
        activities=activities, assessments=assess(situation), engines={}, checks=(), automatic=True, status="",
    )  # fmt: skip


__all__ = ["CARD", "PROGRAM", "running", "state"]
