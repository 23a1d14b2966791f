"""Every test runs away from the machine's own configuration and bus, and leaves nothing behind.

A fixture of a wider scope (a bus, a booted system) is set up before these function-scoped ones, so what it
keeps running is known when a test begins and never counts as left behind.
"""

import asyncio
import gc
import inspect
import itertools
import os
import time
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import psutil
import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import settings

from gpusupervisor.engine_http import EngineHttp
from tests.http_peer import Peer

MACHINE_VARIABLES = frozenset(
    {
        "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "DBUS_STARTER_ADDRESS",
        "DBUS_STARTER_BUS_TYPE", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "JOURNAL_STREAM",
        "INVOCATION_ID", "LISTEN_FDS", "LISTEN_PID", "STATE_DIRECTORY", "RUNTIME_DIRECTORY",
        "CONFIGURATION_DIRECTORY", "CACHE_DIRECTORY", "LOGS_DIRECTORY", "CREDENTIALS_DIRECTORY",
        "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SYSTEMD_LOG_LEVEL",
    }
)  # fmt: skip
HOME_VARIABLES = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")
GRACE = 2.0
"""Seconds that something which is just ending may still take before it counts as left behind."""

settings.register_profile("unhurried", deadline=None)  # how long an example takes says more of the machine than of us
settings.load_profile("unhurried")

_failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember that a test failed: what its traceback keeps alive is not reported a second time."""
    report = yield
    if report.failed:
        item.stash[_failed] = True
    return report


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Empty folders, a new one at each `next`."""
    base = tmp_path_factory.mktemp("homes")
    return (base / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def hermetic(monkeypatch: pytest.MonkeyPatch, homes: Iterator[Path]) -> None:
    """Nothing of the machine: variables gone, home and XDG folders empty, the bus addresses dead ends."""
    for name in list(os.environ):
        if name.upper() in MACHINE_VARIABLES or name.startswith("GPUSUPERVISOR_"):
            monkeypatch.delenv(name)
    home = next(homes)
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in HOME_VARIABLES:
        monkeypatch.setenv(name, str(home / name.lower()))
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={home}/no-system-bus")
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={home}/no-session-bus")


@pytest.fixture(autouse=True)
def no_blocking_calls(nothing_left_behind: None) -> Iterator[BlockBuster]:
    """A blocking call that our own package makes inside an event loop fails the test."""
    with blockbuster_ctx("gpusupervisor") as blocker:
        yield blocker


def _descendants(known: frozenset[int] = frozenset()) -> dict[int, str]:
    """Processes below this one, zombies included; what is below a known one belongs to it and is left out."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return {}  # no child at all: spares the scan of /proc
    children: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        try:
            children.setdefault(process.ppid(), []).append(process)
        except psutil.NoSuchProcess:
            continue
    found: dict[int, str] = {}
    parents = [os.getpid()]
    while parents:
        for child in children.get(parents.pop(), []):
            if child.pid not in known:
                found[child.pid] = str(child)
                parents.append(child.pid)
    return found


def _open_fds() -> dict[str, str]:
    """What every open descriptor of this process points at, keyed so that a reused number is a new entry."""
    fds: dict[str, str] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
        fds[f"{name} {target}"] = target
    return fds


def _new_fds(before: dict[str, str]) -> list[str]:
    new = _open_fds().keys() - before.keys()
    if new:
        gc.collect()  # what only a reference cycle holds is not left behind
        new = _open_fds().keys() - before.keys()
    return sorted(new)


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest, hermetic: None) -> Iterator[None]:
    """Processes and file descriptors left behind fail the test."""
    known = frozenset(_descendants())
    fds_before = _open_fds()
    yield
    if request.node.stash.get(_failed, False):
        return
    deadline = time.monotonic() + GRACE
    while (left := _descendants(known)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left, f"processes left behind: {sorted(left.values())}"
    new_fds = _new_fds(fds_before)
    assert not new_fds, f"file descriptors left behind: {new_fds}"


@pytest.fixture(autouse=True)
def tasks_are_watched(request: pytest.FixtureRequest, nothing_left_behind: None) -> None:
    """Asynchronous tests get `no_tasks_left_behind` before any fixture of their own."""
    if inspect.iscoroutinefunction(getattr(request, "function", None)):
        request.getfixturevalue("no_tasks_left_behind")


@pytest.fixture
async def no_tasks_left_behind(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Tasks left behind in the test's event loop fail the test."""
    yield
    if request.node.stash.get(_failed, False):
        return
    for _ in range(10):  # what was cancelled and not awaited needs a few turns of the loop to end
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"tasks left behind: {left}")


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    """An HTTP server that answers as a test wants."""
    peer = Peer()
    await peer.start()
    yield peer
    await peer.stop()


@pytest.fixture
async def http() -> AsyncIterator[EngineHttp]:
    """The client with which engines are asked."""
    client = EngineHttp()
    yield client
    await client.aclose()
