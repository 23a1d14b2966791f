"""A sweep of the power limit as it really goes: supervisor, helper and engine are processes, and are killed as such."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from dbus_fast import Variant

from gpusupervisor.bus import names
from gpusupervisor.simulation.engines.launch import disguised_python
from tests.daemon.conftest import hang_up
from tests.daemon.observer import PATIENCE, CallFailed, Observer, observer_of
from tests.daemon.station import Daemon, Engine, Station
from tests.daemon.test_hand_off import CARD, GIB, MODEL, OLLAMA, is_idle

GPU = names.gpu_path(CARD)
PROFILE = f"{names.BUS_NAME}.Profile"
BEFORE = 333_000
"""mW: what the stored profile says."""
TOKENS = 10
"""A tenth of a second at 100 a second."""
MANY = 150


@dataclass
class Bench:
    """An idle Ollama with its model on a card whose limit holds it down, and both processes."""

    station: Station
    daemon: Daemon
    helper: Any
    ollama: Engine
    observer: Observer

    def limit(self) -> int | None:
        """mW, as set on the card."""
        return self.station.card.settings(CARD).power_limit

    async def autotune(self, **options: tuple[str, object]) -> str:
        """Start one; the path of its job."""
        engine = options.pop("engine", ("s", "ollama"))[1]
        given = {"model": ("s", MODEL), "tokens": ("u", TOKENS), **options}
        variants = {name.replace("_", "-"): Variant(*value) for name, value in given.items()}
        return str(await self.observer.ask(GPU, PROFILE, "Autotune", "sa{sv}", engine, variants))

    async def job(self, path: str) -> dict[str, Any]:
        return await self.observer.properties(path, "Job")

    async def ended(self, path: str) -> dict[str, Any]:
        return await self.observer.sees(path, "Job", "the end", State=lambda state: state != "running")

    async def until_set(self, limit: Callable[[int | None], bool], what: str) -> None:
        """Wait until the card's limit is so."""
        await until(lambda: limit(self.limit()), what)

    async def in_the_middle(self, **options: tuple[str, object]) -> str:
        """A sweep of long runs that has measured nothing yet and has its first point set."""
        job = await self.autotune(**{"tokens": ("u", MANY), "steps": ("u", 3), **options})
        await self.until_set(lambda limit: limit == 150_000, "the first point")
        return job


async def until(probe: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            while not probe():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not in time: {what}") from None


@pytest.fixture(autouse=True)
def no_blocking_calls() -> None:
    """What is tested runs in other processes; here the card's files are looked at."""


@pytest.fixture
async def bench(lonely_station: Station) -> AsyncIterator[Bench]:
    station = lonely_station
    station.card.change_board(CARD, power=420_000)
    home = station.folder / "ollama"
    ollama = station.engine(
        "ollama", "--port", "0", "--model", f"{MODEL}=13G", "--home", home, "--load-time", "50ms",
        "--tokens-per-second", "100", executable=disguised_python(home / "bin" / "ollama"),
    )  # fmt: skip
    await asyncio.to_thread(ollama.post, "/api/generate", {"model": MODEL})  # now: memory that grows is a sign of life
    station.describe({"ollama": OLLAMA.format(url=ollama.url)})
    helper = await asyncio.to_thread(station.helper)
    daemon = await asyncio.to_thread(station.daemon("--brief").wait_ready)
    observer = await observer_of(station.bus.address)
    bench = Bench(station, daemon, helper, ollama, observer)
    await observer.sees_tenant("ollama", "an idle model", Activity=is_idle, Holding=lambda held: held > 12 * GIB)
    await observer.ask(GPU, PROFILE, "Apply", "s", json.dumps({"power-limit": f"{BEFORE}mW", "persistence": True}))
    yield bench
    await hang_up(observer)
    assert "Traceback" not in daemon.log


async def test_a_sweep_proposes_the_efficient_limit_and_leaves_the_card_as_it_was(bench: Bench) -> None:
    seen: list[int | None] = []
    job = await bench.autotune(tokens=("u", 40), steps=("u", 4), clock_offsets=("ai", [0, 100]))
    shown = await bench.job(job)
    assert (shown["Kind"], shown["Target"]) == ("autotune", CARD)
    while (shown := await bench.job(job))["State"] == "running":
        if not seen or seen[-1] != bench.limit():
            seen.append(bench.limit())
        await asyncio.sleep(0.01)
    assert (shown["State"], shown["Progress"]) == ("succeeded", 100), shown["Detail"]
    result = shown["Result"]
    limits = [150_000, 260_000, 370_000, 480_000]
    assert [(each["power_limit"], each["offset_graphics"]) for each in result["curve"]] == [
        (limit, offset) for offset in (0, 100) for limit in limits
    ]
    for each in result["curve"]:
        assert each["power"] == pytest.approx(min(each["power_limit"], 420_000), rel=0.1)
    slow, *_, fast = result["curve"][:4]
    assert slow["throughput"] / fast["throughput"] == pytest.approx((150 / 420) ** (1 / 3), rel=0.01)
    assert result["proposal"] in result["curve"]
    assert {150_000, 260_000, 370_000} <= set(seen)
    assert (bench.limit(), bench.station.card.settings(CARD).offsets.get("graphics/0", 0)) == (BEFORE, 0)
    profile = await bench.observer.properties(GPU, "Profile")
    assert (profile["Trial"], json.loads(profile["Profile"])["power-limit"]) == ("", "333W"), "nothing was stored"
    wanted = json.loads(result["profile"])
    assert wanted["persistence"] is True, "what else is stored stays when the proposal is confirmed"
    await bench.observer.ask(GPU, PROFILE, "Try", "st", result["profile"], 60_000_000)
    assert bench.limit() == result["proposal"]["power_limit"]


async def test_one_step_is_enough(bench: Bench) -> None:
    shown = await bench.ended(await bench.autotune(steps=("u", 1)))
    assert shown["State"] == "succeeded", shown["Detail"]
    assert [each["power_limit"] for each in shown["Result"]["curve"]] == [480_000]
    assert bench.limit() == BEFORE


async def test_a_cancelled_sweep_leaves_the_card_as_it_was_and_tells_what_it_has(bench: Bench) -> None:
    job = await bench.autotune(steps=("u", 64))
    await bench.observer.sees(job, "Job", "some of the curve", Result=lambda result: len(result.get("curve", ())) > 1)
    await bench.observer.ask(job, f"{names.BUS_NAME}.Job", "Cancel")
    shown = await bench.ended(job)
    assert shown["State"] == "cancelled"
    assert len(shown["Result"]["curve"]) > 1
    assert "proposal" not in shown["Result"]
    assert bench.limit() == BEFORE


async def test_while_it_runs_nothing_else_may_set_the_card_or_have_the_engines_memory(bench: Bench) -> None:
    job = await bench.in_the_middle()
    for interface, member, signature, *arguments in (
        ("Profile", "Try", "st", "{}", 30_000_000),
        ("Profile", "Confirm", ""),
        ("Profile", "Revert", ""),
        ("Profile", "Apply", "s", "{}"),
        ("Profile", "Reset", ""),
        ("Profile", "CheckDrift", ""),
        ("Fans", "SetFixed", "uu", 0, 60),
        ("Gpu", "Detach", ""),
    ):
        with pytest.raises(CallFailed, match="An autotune of this GPU is running") as failure:
            await bench.observer.ask(GPU, f"{names.BUS_NAME}.{interface}", member, signature, *arguments)
        assert failure.value.name == "Busy"
    with pytest.raises(CallFailed, match="is using it") as failure:
        await bench.observer.release("ollama")
    assert failure.value.name == "Busy"
    with pytest.raises(CallFailed) as failure:
        await bench.autotune()
    assert failure.value.name == "Busy", "one at a time"
    assert (await bench.job(job))["State"] == "running"


async def test_an_xid_stops_it_and_the_card_is_as_it_was(bench: Bench) -> None:
    job = await bench.in_the_middle()
    bench.station.card.raise_xid(CARD, 13)
    shown = await bench.ended(job)
    assert (shown["State"], shown["Detail"]) == ("failed", "The sweep was stopped: the GPU reported Xid 13")
    assert bench.limit() == BEFORE


async def test_an_xid_of_the_past_stops_nothing(bench: Bench) -> None:
    bench.station.card.raise_xid(CARD, 13)
    shown = await bench.ended(await bench.autotune(steps=("u", 1)))
    assert shown["State"] == "succeeded", shown["Detail"]


@pytest.mark.parametrize(
    ("board", "why"),
    [
        ({"temperature": 88}, "the GPU became as hot as 87"),
        ({"clock_event_reasons": 0x40}, "slowed itself down (hw-thermal-slowdown)"),
        ({"sensor_reads": 255}, "report its temperature"),
    ],
    ids=["hot", "throttled", "blind"],
)
async def test_heat_stops_it(bench: Bench, board: dict[str, int], why: str) -> None:
    job = await bench.in_the_middle()
    bench.station.card.change_board(CARD, **board)
    shown = await bench.ended(job)
    assert shown["State"] == "failed"
    assert why in shown["Detail"]
    assert bench.limit() == BEFORE


async def test_a_lost_engine_stops_it(bench: Bench) -> None:
    job = await bench.in_the_middle()
    bench.ollama.process.kill()
    shown = await bench.ended(job)
    assert shown["State"] == "failed"
    assert "Ollama" in shown["Detail"]
    assert bench.limit() == BEFORE


async def test_when_the_supervisor_is_killed_the_helper_takes_the_point_back(bench: Bench) -> None:
    await bench.in_the_middle()
    bench.daemon.process.kill()
    await asyncio.to_thread(bench.daemon.wait)
    assert bench.limit() == 150_000, "nobody could have taken it back yet"
    await bench.until_set(lambda limit: limit == BEFORE, "the state before, by the helper alone")
    call = ("call", names.HELPER_NAME, names.HELPER_PATH, names.HELPER_NAME, "State")
    told = (await bench.station.bus.busctl(*call)).json[0]
    assert told[CARD]["last_trial"]["data"] == "abandoned", "not only when its time was up"


async def test_when_the_supervisor_is_stopped_it_takes_the_point_back_first(bench: Bench) -> None:
    await bench.in_the_middle()
    bench.daemon.process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(bench.daemon.wait) == 0
    assert bench.limit() == BEFORE


async def test_a_helper_that_hangs_does_not_keep_the_supervisor_from_ending_by_itself(bench: Bench) -> None:
    """systemd would kill it after 20 seconds."""
    await bench.in_the_middle()
    bench.helper.send_signal(signal.SIGSTOP)
    bench.daemon.process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(bench.daemon.wait, 18) == 0
    assert "has not cleaned up within 12 s" in bench.daemon.log
    bench.helper.send_signal(signal.SIGCONT)
    await bench.until_set(lambda limit: limit == BEFORE, "the state before, by the helper alone")


async def test_when_the_helper_is_killed_the_sweep_fails_and_the_next_helper_takes_the_point_back(bench: Bench) -> None:
    job = await bench.in_the_middle()
    bench.helper.kill()
    bench.helper.wait()
    shown = await bench.ended(job)
    assert (shown["State"], "helper" in shown["Detail"]) == ("failed", True)
    await asyncio.to_thread(bench.station.helper)
    await bench.until_set(lambda limit: limit == BEFORE, "the state before, by the next helper")


async def test_a_point_that_was_taken_back_behind_its_back_is_not_measured(bench: Bench) -> None:
    job = await bench.in_the_middle()
    call = ("call", names.HELPER_NAME, names.HELPER_PATH, names.HELPER_NAME, "Revert", "s", CARD)
    assert (await bench.station.bus.busctl(*call)).status == 0
    shown = await bench.ended(job)
    assert shown["State"] == "failed"
    assert "has set the state before again" in shown["Detail"]
    assert bench.limit() == BEFORE


async def refused(bench: Bench, error: str, text: str, **options: tuple[str, object]) -> None:
    with pytest.raises(CallFailed, match=text) as failure:
        await bench.autotune(**options)
    assert failure.value.name == error
    assert bench.limit() == BEFORE


async def test_what_cannot_be_swept_is_refused_with_the_reason(bench: Bench) -> None:
    await refused(bench, "NoSuchEngine", "No engine is called 'nobody'", engine=("s", "nobody"))
    await refused(bench, "InvalidArgument", "name of the model", model=("s", ""))
    await refused(bench, "InvalidArgument", "steps is 0; allowed: 1 to 64", steps=("u", 0))
    await refused(bench, "InvalidArgument", "allowed: 0 to 99 percent", tolerance=("u", 100))
    await refused(bench, "InvalidArgument", "-1000 to 1000 MHz", clock_offsets=("ai", [2000]))
    await refused(bench, "InvalidArgument", "no 'speed' of type s; allowed: model", speed=("s", "fast"))
    observer = bench.observer
    await observer.ask(GPU, PROFILE, "Try", "st", json.dumps({"persistence": True}), 60_000_000)
    await refused(bench, "Busy", "A profile is on trial")
    await observer.ask(GPU, PROFILE, "Revert")
    body = {"model": MODEL, "prompt": "x", "options": {"num_predict": 500}}
    asking = asyncio.create_task(asyncio.to_thread(bench.ollama.post, "/api/generate", {**body, "stream": False}))
    await observer.sees_tenant("ollama", "at work", Activity=lambda state: state == "busy")
    await refused(bench, "Busy", "must be idle and is busy")
    await asking


async def test_an_engine_that_is_not_running_is_unreachable(bench: Bench) -> None:
    bench.ollama.process.terminate()
    await bench.observer.sees_tenant("ollama", "that it is gone", Activity=lambda state: state != "idle")
    with pytest.raises(CallFailed) as failure:
        await bench.autotune()
    assert failure.value.name == "EngineUnreachable"


async def test_a_gpu_given_away_is_refused(bench: Bench) -> None:
    await bench.observer.ask(GPU, f"{names.BUS_NAME}.Gpu", "Detach")
    with pytest.raises(CallFailed) as failure:
        await bench.autotune()
    assert failure.value.name == "GpuUnavailable"


async def test_a_model_that_it_has_not_fails_before_anything_is_set(bench: Bench) -> None:
    shown = await bench.ended(await bench.autotune(model=("s", "nothing")))
    assert shown["State"] == "failed"
    assert "model 'nothing' not found" in shown["Detail"]
    assert bench.limit() == BEFORE
