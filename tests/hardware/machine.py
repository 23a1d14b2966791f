"""What a driver's library needs of the machine: its device nodes and system calls, and what a stranger may read."""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gpusupervisor.gpu.sample import Sample
from tests.hardware.children import start
from tests.hardware.findings import Findings

PATIENCE = 20.0
_CALL = re.compile(r"^\d+\s+(\w+)\(")
_NODE = re.compile(r'"(/dev/nvidia[\w/-]*|/dev/dxg)"')
LIBRARY = "libnvidia-ml.so"
FORBIDDEN = ("@privileged", "@resources")


def stranger(findings: Findings, command: Sequence[str], sample: Sample) -> None:
    """What a user without any privilege sees, held against what this user has seen."""
    findings.section("Without privilege")
    child = start(command, "stranger")
    try:
        output, _ = child.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        findings.unproved("reading as nobody", f"it took longer than {PATIENCE:g} s")
        return
    told = json.loads(output or "{}")
    if "problem" in told or not told:
        findings.unproved("reading as nobody", told.get("problem", "the process ended without a word"))
        return
    mine = {gpu.identity.uuid: gpu for gpu in sample.gpus}
    for uuid, seen in told["gpus"].items():
        known = mine.get(uuid)
        total = known.memory.total if known and known.memory else None
        findings.expect("memory as nobody", "the same size", f"{seen['total']}", seen["total"] == total)
        listed = {process.pid for process in known.processes} if known else set()
        missing = sorted(listed - set(seen["pids"]))
        findings.expect("processes as nobody", "the same", f"{len(seen['pids'])}, without {missing}", not missing)


def system_calls(findings: Findings, command: Sequence[str]) -> None:
    """Which nodes and system calls a first sample uses, and whether the units allow them."""
    findings.section("System calls")
    strace = shutil.which("strace")
    if strace is None:
        findings.unproved("what initialising needs", "strace is not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        traced = [strace, "-f", "-qq", "-o", str(trace), *command, "--child", "look"]
        try:
            done = subprocess.run(traced, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            findings.unproved("what initialising needs", f"tracing took longer than {PATIENCE:g} s")
            return
        lines = trace.read_text(errors="replace").splitlines() if trace.exists() else []
    first = next((number for number, line in enumerate(lines) if LIBRARY in line and "= -1" not in line), None)
    if done.returncode or first is None:
        findings.unproved("what initialising needs", "the driver's library was not loaded under strace")
        return
    used = {match[1] for line in lines[first:] if (match := _CALL.match(line))}
    nodes = sorted({node for line in lines[first:] for node in _NODE.findall(line)})
    findings.fact("device nodes", ", ".join(nodes) or "none")
    findings.fact("system calls", ", ".join(sorted(used)))
    allowed = _allowed()
    if allowed:
        findings.expect("the units' filter", "allows them", sorted(used - allowed) or "all", used <= allowed)


def _allowed() -> frozenset[str]:
    """System calls that the units allow; empty when systemd cannot tell."""
    names = _of_set("@system-service")
    for forbidden in FORBIDDEN:
        names -= _of_set(forbidden)
    return frozenset(names)


def _of_set(name: str) -> set[str]:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return set()
    text = subprocess.run([analyze, "syscall-filter", name], capture_output=True, text=True, timeout=PATIENCE).stdout
    found: set[str] = set()
    for line in text.splitlines():
        word = line.strip()
        if word.startswith("@") and line.startswith(" "):
            found |= _of_set(word)
        elif word and not word.startswith(("#", "@")):
            found.add(word)
    return found
