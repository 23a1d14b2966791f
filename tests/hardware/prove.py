"""Proves on a machine with a card what tests can only simulate. Run by hand:

    python tests/hardware/prove.py            # looks, and changes nothing
    sudo python tests/hardware/prove.py --write

With --write it asks before each group of settings, and sets everything back: at its end, when it is interrupted, and,
by a process of its own, when it is killed. Looking starts a process that takes 256 MiB of VRAM for a moment, and wakes
a GPU that sleeps only if another one is awake. It prints what it found and writes a report as JSON.

Looking takes 90 s at most, works without privilege too, and ends with a recording of the cards in the report.

Exits 0 when nothing was contradicted, 1 when something was (or could not be set back), 77 when nothing could be proved.
"""

import argparse
import atexit
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gpusupervisor.cli.commands.record import assemble
from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.gpu.sample import Sample
from gpusupervisor.helper.hardware.recording import record as recording_of_cards
from gpusupervisor.helper.hardware.session import HardwareSession
from tests.hardware import children
from tests.hardware.findings import Findings
from tests.hardware.keep import Keeper, take
from tests.hardware.reads import Reads
from tests.hardware.writes import Writes

NOTHING_PROVED = 77
WRONG_USE = 2
MOST_SECONDS = 80
"""For looking; the rest of 90 s is for the recording and the end."""
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
BEYOND = (
    "what a suspend and resume, a driver upgrade or an Xid does to settings",
    "that Xid errors arrive as events when they happen",
    "that a GPU falls asleep once NVML is closed, and stays asleep while only sysfs is looked at for long",
    "that the driver overrides fans when the card is hot, and how sensors fail",
    "cards and driver releases other than those of this machine",
)
"""What this script never proves."""


def main(
    arguments: Sequence[str],
    command: Sequence[str] = (sys.executable, __file__),
    taker: children.Taker | None = None,
) -> int:
    """command: how to start this again for its children. taker: how a child takes VRAM."""
    if "--child" in arguments[:1]:
        return children.main(arguments[1], arguments[2:], taker or children.CudaTaker())
    parser = argparse.ArgumentParser(description="Prove on real hardware what tests can only simulate.")
    parser.add_argument("--write", action="store_true", help="set things too, asking before each group")
    parser.add_argument("--report", type=Path, default=Path("gpusupervisor-proof.json"), metavar="FILE")
    chosen = parser.parse_args(arguments)
    try:
        with chosen.report.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        sys.stderr.write(f"The report cannot be written to {chosen.report}: {error.strerror}. Nothing was done.\n")
        return WRONG_USE
    findings = Findings()
    sample = _read(findings, command)
    recording = _record(findings) if sample is not None else {}
    if sample is not None:
        if chosen.write:
            _write(findings, command)
        else:
            findings.section("Writing")
            findings.unproved("everything that is set", "--write was not given")
    _conclude(findings, chosen.report, recording, driver=sample.driver.version if sample else "")
    if findings.count("contradicted"):
        return 1
    return 0 if findings.count("proved") else NOTHING_PROVED


class OutOfTimeError(Exception):
    """Looking takes too long."""


def _read(findings: Findings, command: Sequence[str]) -> Sample | None:
    """Everything that is proved by looking, as far as the time allows."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, stop)
    reads = Reads(findings, command)
    signal.alarm(MOST_SECONDS)
    try:
        return reads.run()
    except OutOfTimeError:
        findings.unproved("the rest of it", f"{MOST_SECONDS} s were over")
        return reads.sample
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _record(findings: Findings) -> dict[str, object]:
    """What every getter answers: from it a simulated card can be made."""
    findings.section("Recording")
    try:
        found = assemble(list(recording_of_cards()))
    except DriverError as error:
        findings.unproved("a recording of the cards", error)
        return {}
    calls = sum(len(gpu["calls"]) for gpu in found["gpus"])
    findings.fact("a recording of the cards", f"{calls} answers, in the report")
    return found


def _write(findings: Findings, command: Sequence[str]) -> None:
    for number in SIGNALS:
        signal.signal(number, _interrupted)
    session = HardwareSession()
    try:
        session.open()
        keeper = Keeper(session, take(session), children.start(command, "watchdog"))
    except (DriverError, OSError) as error:
        session.close()
        findings.section("Writing")
        findings.unproved("everything that is set", f"it could not be made sure that it is set back: {error}")
        return
    atexit.register(keeper.finish)
    try:
        for identity in session.identities():
            Writes(findings, command, keeper, _ask, session.gpu(identity.uuid)).run()
    finally:
        for number in SIGNALS:  # nothing interrupts this
            signal.signal(number, signal.SIG_IGN)
        problems = keeper.finish()
        findings.section("Afterwards")
        same = not problems and take(session) == keeper.snapshots
        findings.expect("settings", "as before", "; ".join(problems) or ("as before" if same else "others"), same)
        session.close()
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)


def _interrupted(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _ask(question: str) -> bool:
    sys.stdout.write(f"\n  May I {question}? [y/N] ")
    sys.stdout.flush()
    answer = sys.stdin.readline().strip().lower()
    sys.stdout.write("\n")
    return answer in ("y", "yes")


def _conclude(findings: Findings, report: Path, recording: dict[str, object], *, driver: str) -> None:
    proved, against, open_ = (findings.count(verdict) for verdict in ("proved", "contradicted", "not proved"))
    out = sys.stdout
    out.write(f"\n{proved} proved, {against} contradicted, {open_} not proved here:\n")
    for finding in findings.all:
        if finding.verdict in ("contradicted", "not proved"):
            out.write(f"  {finding.verdict:<12}  {finding.item}: {finding.seen}\n")
    out.write("Never proved by this script:\n")
    for text in BEYOND:
        out.write(f"  - {text}\n")
    told = {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "driver": driver,
        "root": os.geteuid() == 0,
        "findings": findings.to_json(),
        "never_proved": list(BEYOND),
        "recording": recording,
    }
    report.write_text(json.dumps(told, indent=2) + "\n", "utf-8")
    out.write(f"Report: {report}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
