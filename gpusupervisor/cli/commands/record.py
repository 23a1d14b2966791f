"""`record-card`: what the driver answers about this machine's cards, in a file from which a card can be simulated."""

import sys
from typing import Any

from gpusupervisor.cli.exits import DONE, FAILED, CommandFailed
from gpusupervisor.cli.registry import Command, argument
from gpusupervisor.cli.session import Session

RECORDER = ("-I", "-m", "gpusupervisor.helper.hardware.recording")
"""A process of its own: a getter that nobody has tried may crash in the driver's library."""
MOST_CRASHES = 20
PATIENCE = 120.0


async def record_card(session: Session) -> int:
    """Write the recording."""
    import asyncio
    import json
    from pathlib import Path

    file = Path(session.options.file)
    if not session.options.force and await asyncio.to_thread(file.exists):
        raise CommandFailed(f"{file} exists: give another name, or --force to replace it", FAILED)
    crashed: list[str] = []
    while True:
        lines, problem = await _run(crashed)
        culprit = str(lines[-1]["asking"]) if problem == "crash" and lines and "asking" in lines[-1] else ""
        if not culprit or len(crashed) == MOST_CRASHES:
            break
        crashed.append(culprit)
    if problem and problem != "crash":
        raise CommandFailed(f"The cards cannot be recorded: {problem}", FAILED)
    recording = {**assemble(lines), "crashed": crashed}
    try:
        await asyncio.to_thread(file.write_text, json.dumps(recording, indent=1) + "\n", "utf-8")
    except OSError as error:
        raise CommandFailed(f"{file} cannot be written: {error.strerror}", FAILED) from error
    calls = sum(len(each["calls"]) for each in recording["gpus"])
    session.say(f"{file}: {calls} answers of {len(recording['gpus'])} GPU(s), driver {recording['driver']}")
    session.say("UUIDs, serial numbers and names of processes are not in it.")
    for each in crashed:
        session.say(f"{each} crashed in the driver's library, and was left out.")
    return DONE


async def _run(skip: list[str]) -> tuple[list[dict[str, Any]], str]:
    """The lines of one run, and why it did not end well: "crash", or in words."""
    import asyncio

    options = [word for name in skip for word in ("--skip", name)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, *RECORDER, *options, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(PATIENCE):
            output, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        output, errors = await process.communicate()
        return _lines(output), f"the driver did not answer within {PATIENCE:g} s"
    if process.returncode == 0:
        return _lines(output), ""
    if process.returncode is not None and process.returncode < 0:
        return _lines(output), "crash"
    return _lines(output), errors.decode(errors="replace").strip().rpartition("\n")[2] or "the recorder failed"


def _lines(output: bytes) -> list[dict[str, Any]]:
    import json

    whole = output.decode("utf-8", "replace").splitlines()
    return [json.loads(line) for line in whole if line.endswith("}")]


def assemble(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The recording as it is stored, from the recorder's lines."""
    recording: dict[str, Any] = {"gpus": []}
    for line in lines:
        if "format" in line:
            recording |= line
        elif "gpu" in line:
            recording["gpus"].append({"calls": {}})
        elif "call" in line:
            name = line.pop("call")
            recording["gpus"][-1]["calls"][name] = line
    return recording


COMMANDS = (
    Command(
        "record-card",
        "record what the driver answers, for reports about unusual cards",
        record_card,
        (
            argument("file", metavar="FILE", help="where to write the recording (JSON)", completes="file"),
            argument("--force", "-f", help="replace an existing file", action="store_true"),
        ),
        connects=False,
    ),
)
