"""A real systemd, booted in a container over a throw-away overlay of this machine's own root.

What is installed on this machine is there inside; what is done inside is gone afterwards. The network is an
empty loopback. Only basic.target is booted, so that no service of this machine runs a second time.
"""

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")

REPOSITORY = Path(__file__).parents[2]
SOURCE = "/usr/src/gpusupervisor"
"""Where the repository lies inside, read-only."""

BOOT_DEADLINE = 60.0
WAIT_DEADLINE = 20.0
CAP_SYS_ADMIN = 21
_numbers = itertools.count(1)

# The root is bound in a mount namespace of its own: it is seen by nothing else and goes with the last process
# in it, so no cleaning up can ever reach through it to the real root.
_LAUNCH = """
set -eu
for group in $GROUPS_OF_MACHINE; do echo $$ >"$group/cgroup.procs"; done
exec setpriv --pdeathsig TERM unshare --mount --propagation private sh -eu -c '
    mount --bind / "$ROOT"
    exec systemd-nspawn --quiet --directory="$ROOT" --volatile=overlay --boot --register=no --keep-unit \\
        --link-journal=no --console=pipe --machine="$MACHINE" --private-network --bind-ro="$REPOSITORY:$SOURCE" \\
        --system-call-filter="landlock_create_ruleset landlock_add_rule landlock_restrict_self" \\
        systemd.unit=basic.target
'
"""


def why_not() -> str:
    """Why no machine can be booted here; empty when one can."""
    if os.geteuid() != 0:
        return "booting a systemd needs root"
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    if capabilities is None or not int(capabilities[1], 16) >> CAP_SYS_ADMIN & 1:
        return "booting a systemd needs CAP_SYS_ADMIN, which this root has not (a container?)"
    for program in ("systemd-nspawn", "nsenter", "unshare", "setpriv", "make"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if "overlay" not in Path("/proc/filesystems").read_text() and shutil.which("modprobe") is None:
        return "the kernel has no overlay file system"
    roots = _cgroup_roots()
    if not roots:
        return "no cgroup hierarchy that systemd could use is mounted"
    for root in roots:
        if not os.access(root, os.W_OK) or os.statvfs(root).f_flag & os.ST_RDONLY:
            return f"{root} is read-only (a container?)"
    return ""


def _cgroup_roots() -> list[Path]:
    """Where systemd's hierarchies are mounted: the unified one, and in the hybrid layout name=systemd too, and that of
    device policies, which a machine has read-only until a test remounts it."""
    roots = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup2" or (kind == "cgroup" and {"name=systemd", "devices"} & set(options.split(","))):
            roots.append(Path(where))
    return roots


@dataclass(frozen=True, slots=True)
class Machine:
    """A booted machine; `leader` is its PID 1 as this machine numbers it."""

    leader: int

    def run(
        self,
        *argv: str,
        user: str = "root",
        check: bool = True,
        stdin: str = "",
        environment: Mapping[str, str] | None = None,
        timeout: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside and return its output; a command that fails raises, with what it wrote."""
        enter = ["nsenter", f"--target={self.leader}", "--all"]
        if user != "root":
            enter += ["chroot", f"--userspec={user}:", "/"]  # with the user's groups and without a PAM session
        clean = {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin", "LANG": "C.UTF-8"}
        done = subprocess.run(
            [*enter, *argv],
            env={**clean, **(environment or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{argv} as {user}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def output(self, *argv: str, user: str = "root") -> str:
        """What a command writes, without the last newline."""
        return self.run(*argv, user=user).stdout.rstrip("\n")

    def in_session(self, user: str, *argv: str, seat: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command in a login session of a user; on a seat the session is local and active."""
        session = "XDG_SESSION_CLASS=user XDG_SESSION_TYPE=" + (f"x11 XDG_SEAT={seat}" if seat else "tty")
        options = ["--quiet", "--wait", "--pipe", "--collect", f"--uid={user}"]
        options += ["--property=PAMName=login", f"--property=Environment={session}"]
        return self.run("systemd-run", *options, *argv, check=False)

    def write(self, path: str, text: str) -> None:
        """Write a file inside, with the folders it needs."""
        self.run("install", "-D", "-m", "644", "/dev/stdin", path, stdin=text)

    def journal(self, unit: str) -> str:
        """What a unit has logged since the boot."""
        return self.output("journalctl", "--boot", "--unit", unit, "--output=cat", "--no-pager")

    def property(self, unit: str, name: str) -> str:
        """A property of a unit, as `systemctl show` tells it."""
        return self.output("systemctl", "show", "--value", f"--property={name}", unit)

    def wait_until(self, what: str, probe: Callable[[], T], unit: str, within: float = WAIT_DEADLINE) -> T:
        """Ask until the answer is true; when it never is, fail with what the unit has logged."""
        deadline = time.monotonic() + within
        while not (answer := probe()):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {within:g} s: {what}\n{self.journal(unit)}")
            time.sleep(0.05)
        return answer


@contextlib.contextmanager
def booted(folder: Path) -> Iterator[Machine]:
    """Boot a machine; power it off at the end, whatever happened. folder: for its log and its mount point."""
    name = f"gpusupervisor-{os.getpid()}-{next(_numbers)}"
    root = folder / "root"
    root.mkdir()
    groups = [base / f"ns-{name}" for base in _cgroup_roots()]
    log = folder / "boot.log"
    try:
        for group in groups:
            group.mkdir()
        environment = {
            "PATH": os.defpath + ":/usr/sbin:/sbin",
            "GROUPS_OF_MACHINE": " ".join(map(str, groups)),
            "ROOT": str(root),
            "MACHINE": name,
            "REPOSITORY": str(REPOSITORY),
            "SOURCE": SOURCE,
        }
        with log.open("wb") as output:
            nspawn = subprocess.Popen(
                ["sh", "-c", _LAUNCH],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            machine = _wait_for_boot(nspawn, log)
            yield machine
            machine.run("systemctl", "poweroff", check=False)
            nspawn.wait(timeout=30)
        finally:
            _end(nspawn)
    finally:
        root.rmdir()
        for group in groups:
            _remove_cgroup(group)


def _wait_for_boot(nspawn: subprocess.Popen[bytes], log: Path) -> Machine:
    deadline = time.monotonic() + BOOT_DEADLINE
    state = "no PID 1 yet"
    while time.monotonic() < deadline:
        if nspawn.poll() is not None:
            raise RuntimeError(f"systemd-nspawn ended with {nspawn.returncode}:\n{log.read_text(errors='replace')}")
        leader = _leader(nspawn.pid)
        if leader:
            machine = Machine(leader)
            state = machine.run("systemctl", "is-system-running", "--wait", check=False).stdout.strip()
            if state in ("running", "degraded"):
                return machine
        time.sleep(0.02)
    raise RuntimeError(f"the machine did not boot ({state}):\n{log.read_text(errors='replace')}")


def _leader(nspawn: int) -> int | None:
    """The container's PID 1: the child of nspawn that has become systemd."""
    try:
        children = psutil.Process(nspawn).children()
        return next((child.pid for child in children if child.name() == "systemd"), None)
    except psutil.NoSuchProcess:
        return None


def _end(nspawn: subprocess.Popen[bytes]) -> None:
    """End a machine that was not powered off: with its PID 1 go all its processes."""
    leader = _leader(nspawn.pid)
    if leader:
        os.kill(leader, signal.SIGKILL)
    nspawn.kill()
    nspawn.wait()


def _remove_cgroup(group: Path) -> None:
    """Remove a control group and all below it, waiting for its last processes to go."""
    deadline = time.monotonic() + 5
    while group.exists():
        try:
            for folder, _, _ in os.walk(group, topdown=False):
                os.rmdir(folder)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def make(machine: Machine, target: str, *variables: str) -> str:
    """Run a target of the repository's Makefile inside; returns what it printed."""
    arguments: Sequence[str] = ("make", "--no-print-directory", "-C", SOURCE, target, *variables)
    return machine.run(*arguments, timeout=120).stdout
