"""What a running service sees is taken down so that it can be replayed, without secrets."""

import asyncio
import json

import pytest

from gpusupervisor.engine_http import Answer, TimedOut
from gpusupervisor.errors import Busy, InvalidArgument
from gpusupervisor.films.projector import FilmScript, production_of
from gpusupervisor.films.reading import parse_film
from gpusupervisor.films.replay import replay
from gpusupervisor.films.sanitize import harmless_answer, harmless_command
from gpusupervisor.films.seams import StagedHelper, StagedMonitor, StagedProcfs
from gpusupervisor.films.stage import Stage
from gpusupervisor.films.tape import FORGOTTEN, MOST_LINES, Tape
from gpusupervisor.films.virtual_time import ORIGIN, VirtualClock
from gpusupervisor.gpu.driver_status import STARTING
from gpusupervisor.gpu.sample import Sample
from gpusupervisor.processes.reader import ProcessReader
from tests.films.scripts import MACHINE, ONE, ONE_RUNS, film_of

WORKS = {
    "t": 10,
    "http": {"8188": {"/prompt": ONE, "/queue": ONE_RUNS}},
    "processes": {"200": {"vram": "8G", "over": 4, "cpu": 90, "sm": 60}},
}


def header() -> dict[str, object]:
    return {"title": "a recording"}


async def recorded(clock: VirtualClock, seconds: int) -> list[str]:
    """The lines of a recording of a small machine, one look a second."""
    stage = Stage()
    script = FilmScript(film_of(MACHINE, WORKS), stage, clock)
    monitor = StagedMonitor(stage, clock, lambda: script.advance(clock.now()))
    proc = StagedProcfs(stage, clock)
    reader = ProcessReader(privileged=StagedHelper(stage), proc=proc)
    tape = Tape(clock, proc)
    lines, last = tape.read(0, header)
    for _ in range(seconds):
        sample = await monitor.sample(utilization=True)
        for path in ("/prompt", "/queue"):
            reply = stage.reply("127.0.0.1:8188", f"GET {path}")
            tape.heard("GET", "http://127.0.0.1:8188", path, Answer(200, reply.body, reply.content_type))
        await tape.saw(sample, reader.identify(stage.processes))
        fresh, last = tape.read(last, header)
        lines += fresh
        clock.advance(1_000_000)
    return lines


def test_a_recording_is_a_film_that_shows_the_same() -> None:
    lines = asyncio.run(recorded(VirtualClock(0), 40))
    assert len(lines) < 40, "what does not change is not written"
    film = parse_film("recorded", [line.encode() for line in lines])
    assert film.header.title == "a recording"
    assert not film.acts
    record = replay(production_of(film))
    original = replay(production_of(film_of(MACHINE, WORKS, lasts=40)))
    for at in (5, 20, 30):
        seen = [
            next(each for each in reversed(take.moments) if each.at <= at * 1_000_000).activities["comfyui"].state
            for take in (record, original)
        ]
        assert seen[0] == seen[1], at


async def test_nothing_is_taken_down_while_nobody_asks() -> None:
    clock = VirtualClock(0)
    tape = Tape(clock, StagedProcfs(Stage(), clock))
    assert not tape.on
    await tape.saw(Sample(ORIGIN, STARTING), {})
    tape.heard("GET", "http://127.0.0.1:8188", "/prompt", TimedOut("late"))
    lines, last = tape.read(0, header)
    assert (len(lines), last) == (1, 1)
    clock.advance(FORGOTTEN - 1)
    assert tape.read(last, header) == ([], 1)


async def test_lines_that_nobody_takes_away_end_the_recording_with_a_reason() -> None:
    clock = VirtualClock(0)
    stage = Stage()
    script = FilmScript(film_of(MACHINE), stage, clock)
    monitor = StagedMonitor(stage, clock, lambda: script.advance(clock.now()))
    tape = Tape(clock, StagedProcfs(stage, clock))
    tape.read(0, header)
    for number in range(MOST_LINES + 5):
        sample = await monitor.sample()
        stage.gpus["0"].other = number << 20
        await tape.saw(sample, {})
    with pytest.raises(Busy, match="Lines were lost"):
        tape.read(1, header)
    clock.advance(FORGOTTEN)
    with pytest.raises(InvalidArgument, match="has ended"):
        tape.read(7, header)


def test_prompts_and_secrets_are_left_out() -> None:
    queue = {
        "queue_running": [[1, "an-id", {"6": {"inputs": {"text": "my secret prompt"}}}, {}, []]],
        "queue_pending": [],
    }
    shown = json.dumps(harmless_answer("/queue", Answer(200, json.dumps(queue).encode(), "")))
    assert "an-id" in shown
    assert "secret" not in shown
    slots = [{"id": 0, "is_processing": True, "prompt": "my secret prompt", "params": {"grammar": "secret words"}}]
    shown = json.dumps(harmless_answer("/slots", Answer(200, json.dumps(slots).encode(), "")))
    assert "is_processing" in shown
    assert "secret" not in shown
    assert harmless_answer("/metrics", Answer(200, b"vllm:num_requests 2\n", ""))["text"] == "vllm:num_requests 2"
    assert harmless_answer("/", Answer(200, b"<p>secret", "")) == {"text": ""}
    command = harmless_command(["llama-server", "--api-key", "secret", "--hf-token=secret", "-m", "x.gguf"])
    assert command == ["llama-server", "--api-key", "(set)", "--hf-token=(set)", "-m", "x.gguf"]
