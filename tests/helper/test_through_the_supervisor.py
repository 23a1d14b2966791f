"""All processes on one bus: what is asked of the supervisor is so on the card, and what the helper tells is shown."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from dbus_fast import Message
from dbus_fast.aio import MessageBus

from gpusupervisor.bus import names
from gpusupervisor.bus.connection import driver_call
from gpusupervisor.reader.page_cache.measure import Gauge
from tests.bus.conftest import Result
from tests.helper.conftest import CARD, Bench, ReaderBench, bare
from tests.helper.test_composition import fan, no_blocking_calls, power  # noqa: F401  (a fixture)
from tests.model_files import MIB, disk_folder, make_cold, write

GPU = names.gpu_path(CARD.uuid)


class Public:
    """The supervisor on the bench's bus."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        command = [sys.executable, "-m", "gpusupervisor.simulation.daemon", f"--bus={bench.bus.address}"]
        command += [f"--card={bench.card.directory}", f"--tenants={bench.tenants}"]
        with (bench.folder / "supervisor.log").open("ab") as log:
            self.process = subprocess.Popen(command, env={"PATH": os.environ["PATH"]}, stderr=log)

    async def call(self, interface: str, member: str, *arguments: str) -> Result:
        return await self._bench.bus.call(GPU, interface, member, *arguments)

    async def properties(self, interface: str) -> dict[str, Any]:
        answer = await self.call("org.freedesktop.DBus.Properties", "GetAll", "s", f"org.gpusupervisor1.{interface}")
        return dict(bare(answer.json[0])) if answer.status == 0 else {}

    async def until(self, interface: str, **wanted: object) -> dict[str, Any]:
        """Wait until the properties are so."""
        shown: dict[str, Any] = {}
        try:
            async with asyncio.timeout(15):
                while not wanted.items() <= (shown := await self.properties(interface)).items():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"not {wanted}: {shown}\n{self.log}") from None
        return shown

    @property
    def log(self) -> str:
        return (self._bench.folder / "supervisor.log").read_text()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
async def public(bench: Bench) -> AsyncIterator[Public]:
    bench.start()
    public = Public(bench)
    try:
        await public.until("Fans", Support="supported")
        yield public
    finally:
        public.end()
    assert "Traceback" not in public.log
    assert "Traceback" not in bench.log


async def test_a_curve_set_in_public_is_on_the_card_and_shown_at_once(bench: Bench, public: Public) -> None:
    done = await public.call("Fans", "SetCurve", "ua(uu)a{sv}", "0", "2", "40", "30", "80", "100", "0")
    assert done.status == 0, done.errors
    assert fan(bench).target == 48
    shown = await public.properties("Fans")
    assert (shown["Control"], shown["Fans"][0]["mode"]) == ("controlling", "curve")


async def test_what_the_helper_finds_out_by_itself_is_shown(bench: Bench, public: Public) -> None:
    assert (await public.call("Fans", "SetFixed", "uu", "0", "60")).status == 0
    bench.card.change_board(CARD.uuid, temperature=93)
    shown = await public.until("Fans", Control="fail-safe")
    assert "critical temperature" in shown["ControlReason"]
    assert not fan(bench).manual


async def test_a_profile_is_tried_confirmed_and_reset(bench: Bench, public: Public) -> None:
    wanted = json.dumps({"power-limit": "300W"})
    assert (await public.call("Profile", "Try", "st", wanted, "60000000")).status == 0
    assert (await public.properties("Profile"))["Trial"] == wanted
    assert (await public.call("Profile", "Confirm")).status == 0
    shown = await public.properties("Profile")
    assert (shown["Trial"], shown["Profile"], shown["LastTrial"]) == ("", wanted, "confirmed")
    assert power(bench) == 300_000
    assert (await public.call("Profile", "Reset")).status == 0
    assert (await public.properties("Profile"))["Profile"] == ""
    assert power(bench) == 450_000


async def test_a_gpu_given_away_is_left_alone_by_both_until_it_is_taken_back(bench: Bench, public: Public) -> None:
    assert (await public.call("Gpu", "Detach")).status == 0
    shown = await public.properties("Gpu")
    assert shown["State"] == "asleep"
    assert "detached" in shown["StateDetail"]
    refused = await public.call("Fans", "SetFixed", "uu", "0", "60")
    assert "detached" in refused.errors
    public.end()
    again = Public(bench)
    try:
        assert "detached" in (await again.until("Gpu", State="asleep"))["StateDetail"], "a new supervisor knows"
        assert (await again.call("Gpu", "Attach")).status == 0
        await again.until("Gpu", State="ok")
    finally:
        again.end()


async def test_when_the_helper_has_died_that_is_shown_and_so_is_the_next_one(bench: Bench, public: Public) -> None:
    assert (await public.call("Fans", "SetFixed", "uu", "0", "60")).status == 0
    bench.kill()
    await public.until("Fans", Support="unsupported")
    bench.start()
    assert (await public.until("Fans", Support="supported"))["Control"] == "idle"


async def test_reading_in_public_does_not_keep_the_helper(bench: Bench, public: Public) -> None:
    bench.kill()
    process = bench.start(idle=1)
    for _ in range(30):
        await public.properties("Fans")
        await asyncio.sleep(0.05)
    assert await asyncio.to_thread(process.wait, 10) == 0
    assert (await public.properties("Fans"))["Support"] == "supported", "what is known stays"


async def test_without_a_helper_it_says_so_and_watches_all_the_same(bench: Bench) -> None:
    public = Public(bench)
    try:
        shown = await public.until("Profile", Support="unsupported")
        assert "the helper is not there" in shown["SupportReason"]
        assert (await public.properties("Gpu"))["State"] == "ok"
        refused = await public.call("Profile", "Reset")
        assert "the helper is not there" in refused.errors
    finally:
        public.end()


async def test_a_signal_that_is_not_the_helpers_is_not_passed_on(bench: Bench, public: Public) -> None:
    bus = await MessageBus(bench.bus.address).connect()
    told: list[str] = []
    bus.add_message_handler(lambda message: told.append(str(message.member)) if message.path == GPU else None)
    try:
        await bus.call(driver_call("AddMatch", f"type='signal',path='{GPU}'"))
        forged = Message.new_signal(
            names.HELPER_PATH, names.HELPER_NAME, "DriftDetected", "ssa{sv}", [CARD.uuid, "power-limit", {}]
        )
        forged.destination = names.BUS_NAME
        bus.send(forged)
        bus.send(Message.new_signal(names.HELPER_PATH, names.HELPER_NAME, "FanAlert", "sss", [CARD.uuid, "x", "y"]))
        assert (await public.call("Fans", "SetFixed", "uu", "0", "60")).status == 0  # all before it has arrived
    finally:
        bus.disconnect()
        await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]
    assert set(told) <= {"PropertiesChanged"}


class Warming:
    """The supervisor, an engine, and a model of it that is not in RAM."""

    def __init__(self, bench: ReaderBench, public: Public, model: Path) -> None:
        self.bench = bench
        self.public = public
        self.model = model

    async def begin(self, rate: int) -> str:
        """The object of the job."""
        path = names.engine_path("app")
        arguments = ("sa{sv}", "m", "1", "rate", "t", str(rate))
        answer = await self.bench.bus.call(path, "Engine", "WarmModel", *arguments)
        assert answer.status == 0, answer.errors
        return str(answer.json[0])

    async def until(self, job: str, **wanted: object) -> dict[str, Any]:
        """Wait until the job is so."""
        shown: dict[str, Any] = {}
        async with asyncio.timeout(15):
            while not wanted.items() <= shown.items():
                answer = await self.bench.bus.call(
                    job, "org.freedesktop.DBus.Properties", "GetAll", "s", "org.gpusupervisor1.Job"
                )
                shown = dict(bare(answer.json[0]))
                assert shown["State"] in ("running", wanted.get("State")), shown
        return shown

    def in_ram(self) -> int:
        with self.model.open("rb") as file:
            return Gauge().cached(file.fileno())


@pytest.fixture
async def warming(bench: Bench) -> AsyncIterator[Warming]:
    folder = disk_folder()
    model = write(folder / "m.gguf", 8 * MIB)
    make_cold(model)
    definition = (
        'title = "App"\nengine = "llama.cpp"\n[match]\nunits = ["app.service"]\n[models]\ndirectories = ["{}"]\n'
    )
    (bench.tenants / "app.toml").write_text(definition.format(folder))
    bench.start()
    reader = ReaderBench(bench.folder, bench.bus, bench.card)
    reader.start()
    public = Public(bench)
    try:
        await public.until("Fans", Support="supported")
        yield Warming(reader, public, model)
    finally:
        public.end()
        reader.end()
        shutil.rmtree(folder)
    assert "Traceback" not in public.log
    assert "Traceback" not in bench.log


async def test_a_model_is_warmed_in_public(warming: Warming) -> None:
    assert warming.in_ram() == 0
    job = await warming.begin(0)
    ended = await warming.until(job, State="succeeded")
    assert (ended["Kind"], ended["Target"], ended["Progress"]) == ("warm-up", "app m", 100)
    assert (ended["Result"]["model"], ended["Result"]["size"]) == ("m.gguf", 8 * MIB)
    assert warming.in_ram() == 8 * MIB
    [plan] = (await warming.bench.bus.call(names.ENGINES_PATH, "Engines", "WarmPlan")).json
    assert [(each["model"], each["verdict"]) for each in bare(plan)] == [("m.gguf", "warm")]


async def test_a_reader_killed_in_the_middle_fails_the_job(warming: Warming) -> None:
    job = await warming.begin(MIB)
    warming.bench.kill()
    ended = await warming.until(job, State="failed")
    assert "reader" in ended["Detail"]


async def test_a_supervisor_killed_in_the_middle_ends_the_reading(warming: Warming) -> None:
    await warming.begin(MIB)
    warming.public.end()
    before = warming.in_ram()
    assert (await warming.bench.ask("Residency", "s", "app")).status == 0, (
        "what it was doing for the supervisor has ended by now"
    )
    assert warming.in_ram() - before <= MIB
    assert warming.in_ram() < 8 * MIB
