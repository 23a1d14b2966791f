"""The judgement over what real engines did: ComfyUI, llama-server, llama-swap, recorded ten times a second.

`traces.jsonl` has one recording a line, in milliseconds: `cpu` used in the tenth of a second that ends then, `held` MiB
and `word` from then on. The machine had no GPU: GPU time is not told, and resident memory stands in for VRAM, with
2 GiB added, because models that small are none on a card.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpusupervisor.tenants.activity.verdict import Activity, ActivityState
from tests.tenants.activity.builders import Onlooker

MIB = 1 << 20
RECORDED = [json.loads(line) for line in Path(__file__).with_name("traces.jsonl").read_text().splitlines()]
TRACES = {trace["name"]: trace for trace in RECORDED}
PHASES = range(0, 1000, 100)
"""Milliseconds by which the looks, a second apart, are shifted: no verdict may depend on that."""
WORKS = {
    "comfyui-prompt-that-works": (2230, 10870),
    "comfyui-queue-of-three": (1320, 13890),
    "comfyui33-interrupt": (1100, 4100),
    "comfyui33-load-compute": (1600, 8300),
    "comfyui33-queue-of-3": (1300, 10801),
    "llamaserver-client-disconnects": (1306, 2803),
    "llamaserver-client-disconnects-during-prompt": (1302, 12001),
    "llamaserver-long-prompt": (1301, 9301),
    "llamaserver-short-prompt": (1101, 4601),
    "llamaserver-slow-client": (1301, 12802),
    "llamaserver-two-slots": (1301, 6801),
    "llamaserver-sleep-wake-props-polled": (9001, 10732),
    "llamaswap-load-generate-unload": (2002, 6000),
    "llamaserver-sleep-slots-polled": (0, 941),
}
"""From when to when work was really done, and an API or growing memory showed it."""
LONG = 4000
"""Milliseconds of work after which it must have been seen, on CPU time alone."""
WAITS = {"comfyui-prompt-that-waits", "comfyui33-node-blocks-for-ever", "comfyui33-node-sleeps-15s"}
WORDS: dict[str, ActivityState] = {
    "": "unknown", "-": "unknown", "awake": "unknown", "sleeping": "idle", "starting": "busy", "stopping": "stirring",
    "ready": "unknown", "none": "unknown",
}  # fmt: skip


@dataclass(frozen=True)
class Look:
    at: int
    word: ActivityState
    cpu: int
    """Milliseconds since the look before."""
    activity: Activity

    @property
    def state(self) -> ActivityState:
        return self.activity.state


def state_of(word: str) -> ActivityState:
    """What a probe makes of the recorded word: a number of prompts or slots counts work."""
    if word in WORDS:
        return WORDS[word]
    return "busy" if any(figure in "123456789" for figure in word) else "idle"


def last(changes: Sequence[Sequence[Any]], at: int) -> Any:
    return [value for since, value in changes if since <= at or since == changes[0][0]][-1]


@cache
def looks(name: str, phase: int) -> tuple[Look, ...]:
    """One look a second, from a little while of rest before the recording on."""
    trace, found = TRACES[name], []
    onlooker = Onlooker("comfyui" if "comfy" in trace["name"] else "http", "cpu", "vram", "sm-utilization")
    held = 2048 + trace["held"][0][1]
    for _ in range(15):
        onlooker.sees(state_of(last(trace["word"], 0)), sm=None, held=held * MIB)
    for at in range(phase, trace["end"] + 1, 1000):
        cpu = sum(used for when, used in trace["cpu"] if at - 1000 < when <= at)
        word = state_of(last(trace["word"], at))
        held = 2048 + last(trace["held"], at)
        found.append(Look(at, word, cpu, onlooker.sees(word, sm=None, cpu=cpu, held=held * MIB)))
    return tuple(found)


def every(name_is: Callable[[str], bool]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("trace", [name for name in TRACES if name_is(name)])


@every(lambda name: True)
def test_nothing_but_work_is_busy(trace: str) -> None:
    begin, end = WORKS.get(trace, (1 << 40, 0))
    for phase in PHASES:
        wrong = [look for look in looks(trace, phase) if look.state == "busy" and not begin <= look.at <= end + 4000]
        assert wrong == []


@every(lambda name: True)
def test_every_sign_of_life_protects(trace: str) -> None:
    for phase in PHASES:
        wrong = [
            look
            for look in looks(trace, phase)
            if look.state in ("idle", "absent") and (look.word != "idle" or look.cpu > 100)
        ]
        assert wrong == []


@every(lambda name: name in WORKS and WORKS[name][1] - WORKS[name][0] >= LONG)
def test_work_is_busy_soon_and_until_it_ends(trace: str) -> None:
    begin, end = WORKS[trace]
    for phase in PHASES:
        late = [look for look in looks(trace, phase) if begin + LONG <= look.at < end and look.word == "busy"]
        assert [look for look in late if look.state != "busy"] == []
        assert late or end - begin < LONG + 1000 or "llamaswap" in trace


@every({"comfyui33-load-compute", "comfyui-prompt-that-works"}.__contains__)
def test_a_job_that_loads_is_busy_at_once(trace: str) -> None:
    begin, _ = WORKS[trace]
    for phase in PHASES:
        assert next(look for look in looks(trace, phase) if look.state == "busy").at <= begin + 1500


@every(WAITS.__contains__)
def test_a_job_that_waits_is_claimed(trace: str) -> None:
    for phase in PHASES:
        under_word = {look.state for look in looks(trace, phase) if look.word == "busy"}
        assert under_word == {"claimed"}


@every(lambda name: "object-info" in name)
def test_a_page_that_loads_protects_without_a_claim(trace: str) -> None:
    for phase in PHASES:
        states = [look.state for look in looks(trace, phase) if 2000 <= look.at <= 7000]
        assert set(states) == {"stirring"}


@every(lambda name: name in ("comfyui-idle", "comfyui33-idle", "llamaserver-idle") or "websocket" in name)
def test_an_engine_at_rest_is_idle(trace: str) -> None:
    for phase in PHASES:
        assert {look.state for look in looks(trace, phase) if look.at >= 400} == {"idle"}
