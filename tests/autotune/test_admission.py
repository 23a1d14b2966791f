"""What may be swept, and what not for which reason."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gpusupervisor.arbitration.situation import GpuSituation, Situation
from gpusupervisor.autotune.admission import points_of, require_engine
from gpusupervisor.autotune.points import Point
from gpusupervisor.controls import Ability, Controls, GpuControls, TuningWish
from gpusupervisor.errors import (
    Busy,
    EngineUnreachable,
    GpuUnavailable,
    InvalidArgument,
    NoSuchEngine,
    NotSupported,
    SupervisorError,
)
from gpusupervisor.gpu.sample import GpuIdentity
from gpusupervisor.state import EngineStatus
from tests.arbitration.builders import CARD, GIB, situation, tenant
from tests.bus.builders import make_plan

OTHER = "GPU-2"
ENGINES = {"ollama": EngineStatus("ollama", "ollama", "Ollama", "http://127.0.0.1:11434", True, "0.33.0", "")}
TWO = {uuid: GpuSituation(uuid, "RTX 4090", 24 * GIB, GIB, ()) for uuid in (CARD, OTHER)}


def admitted(seen: Situation, engines: Mapping[str, EngineStatus] = ENGINES) -> EngineStatus:
    return require_engine(engines, seen, {}, CARD, "ollama")


@pytest.mark.parametrize("held", [0, 13])
def test_an_idle_engine_on_the_only_gpu_may_be_used(held: int) -> None:
    assert admitted(situation(tenant("ollama", held))) == ENGINES["ollama"]


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"activity": "busy"}, Busy, "must be idle and is busy: it answers"),
        ({"activity": "unknown"}, Busy, "must be idle and is unknown"),
        ({"activity": "stuck"}, Busy, "must be idle and is stuck"),
        ({"activity": "absent"}, EngineUnreachable, "cannot be reached"),
        ({"used_by": "a job has it work"}, Busy, "ollama is in use: a job has it work"),
        ({"remote": True}, NotSupported, "not on this machine"),
        ({"holdings": {OTHER: GIB}}, InvalidArgument, "holds memory on GPU-2"),
        ({"holdings": {CARD: GIB}, "unknown_on": frozenset({OTHER})}, InvalidArgument, "does not use only this GPU"),
    ],
)
def test_an_engine_that_cannot_be_used_is_refused(
    changes: dict[str, Any], error: type[SupervisorError], text: str
) -> None:
    with pytest.raises(error, match=text):
        admitted(situation(replace(tenant("ollama", 13), activity_reason="it answers", **changes)))


def test_an_engine_that_nobody_can_reach_is_not_called_busy() -> None:
    engines = {"ollama": replace(ENGINES["ollama"], reachable=False)}
    with pytest.raises(EngineUnreachable, match="cannot be reached: ollama is unknown"):
        admitted(situation(tenant("ollama", 13, "unknown")), engines)


def test_among_several_gpus_it_must_be_known_where_it_works() -> None:
    with pytest.raises(InvalidArgument, match="unknown which GPU"):
        admitted(situation(tenant("ollama"), gpus=TWO))
    assert admitted(situation(tenant("ollama", 13), gpus=TWO)) == ENGINES["ollama"]


def test_who_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(NoSuchEngine, match="There are: ollama"):
        require_engine(ENGINES, situation(tenant("ollama")), {}, CARD, "vllm")
    with pytest.raises(GpuUnavailable):
        require_engine(ENGINES, replace(situation(tenant("ollama")), gpus={}), {}, CARD, "ollama")


def test_not_while_memory_changes_hands_there() -> None:
    with pytest.raises(Busy, match="is being carried out on this GPU"):
        require_engine(ENGINES, situation(tenant("ollama", 13)), {CARD: make_plan()}, CARD, "ollama")


LIMIT = Ability("power-limit", "supported", "", 150_000, 480_000, 450_000)
OFFSET = Ability("offset-graphics", "unverifiable", "not reported", -200, 200, 0)
WISH = TuningWish("ollama", steps=3)


def controls(*abilities: Ability, **changes: Any) -> Controls:
    gpu = GpuControls(GpuIdentity(CARD, "RTX 4090", "00000000:01:00.0"), "ok", abilities=abilities)
    return Controls({CARD: replace(gpu, **changes)}, "")


def test_limits_span_what_the_hardware_allows() -> None:
    assert points_of(controls(LIMIT), CARD, WISH) == (Point(150_000), Point(315_000), Point(480_000))
    assert points_of(controls(LIMIT), CARD, replace(WISH, steps=1)) == (Point(480_000),)
    assert points_of(controls(replace(LIMIT, maximum=150_000)), CARD, WISH) == (Point(150_000),)
    both = points_of(controls(LIMIT, OFFSET), CARD, replace(WISH, steps=2, offsets=(0, 50)))
    assert [(point.power_limit, point.offset) for point in both] == [
        (150_000, 0), (480_000, 0), (150_000, 50), (480_000, 50),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("known", "error", "text"),
    [
        (controls(replace(LIMIT, support="read-only", reason="fixed")), NotSupported, "cannot be set: fixed"),
        (controls(replace(LIMIT, support="unsupported", reason="a laptop")), NotSupported, "a laptop"),
        (controls(replace(LIMIT, minimum=None)), NotSupported, "does not report the range"),
        (controls(), NotSupported, "not known yet"),
        (controls(LIMIT, condition="given-away"), GpuUnavailable, "detached: call Attach"),
        (controls(LIMIT, condition="asleep"), GpuUnavailable, "is asleep"),
        (controls(LIMIT, condition="unavailable", detail="it is lost"), GpuUnavailable, "it is lost"),
        (controls(LIMIT, trial="{}"), Busy, "on trial"),
        (replace(controls(LIMIT), problem="the helper is not there"), GpuUnavailable, "helper is not there"),
        (Controls({}, ""), GpuUnavailable, "does not know it"),
    ],
)
def test_a_gpu_that_cannot_be_set_is_refused(known: Controls, error: type[SupervisorError], text: str) -> None:
    with pytest.raises(error, match=text):
        points_of(known, CARD, WISH)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"steps": 0}, "1 to 64"),
        ({"steps": 65}, "1 to 64"),
        ({"tolerance": 100}, "0 to 99"),
        ({"offsets": tuple(range(17))}, "16"),
        ({"steps": 64, "offsets": (0, 1, 2, 3, 4)}, "256 points"),
        ({"offsets": (201,)}, "-200 to 200 MHz"),
    ],
)
def test_a_wish_beyond_measure_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        points_of(controls(LIMIT, OFFSET), CARD, replace(WISH, **changes))
