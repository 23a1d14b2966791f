"""The guards of conftest.py let clean tests pass and fail those that leave something behind or block the loop."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = '''
import asyncio, os, subprocess, time
import pytest
import gpusupervisor.errors

kept = []

@pytest.fixture(scope="session")
def daemon():
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()

@pytest.fixture
async def server():
    async def close(reader, writer):
        writer.close()
        await writer.wait_closed()
    server = await asyncio.start_server(close, "127.0.0.1", 0)
    task = asyncio.create_task(server.serve_forever())
    yield server.sockets[0].getsockname()[1]
    task.cancel()
    await asyncio.wait([task])
    server.close()
    await server.wait_closed()

def in_our_package(call):
    """Call something from code that lies in our package."""
    code = compile("def f(call): return call()", gpusupervisor.errors.__file__, "exec")
    exec(code, room := {})
    return room["f"](call)

def test_clean(): pass
def test_clean_with_a_session_daemon(daemon): pass
async def test_clean_async_with_a_server(daemon, server):
    reader, writer = await asyncio.open_connection("127.0.0.1", server)
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
async def test_clean_subprocess():
    assert await (await asyncio.create_subprocess_exec("true")).wait() == 0
async def test_clean_thread():
    await asyncio.to_thread(in_our_package, lambda: time.sleep(0.001))
async def test_clean_cancelled_task():
    asyncio.create_task(asyncio.sleep(60)).cancel()
def test_clean_environment():
    assert "machines-own" not in os.environ["DBUS_SYSTEM_BUS_ADDRESS"] + os.environ["HOME"]
    assert not {"NOTIFY_SOCKET", "GPUSUPERVISOR_TENANT", "http_proxy"} & os.environ.keys()

def test_bad_process(daemon): kept.append(subprocess.Popen(["sleep", "30"]))
def test_bad_descriptor(): kept.append(os.pipe())
async def test_bad_task(): kept.append(asyncio.create_task(asyncio.sleep(60)))
async def test_bad_blocking_call(): in_our_package(lambda: time.sleep(0.001))

def test_end_of_the_bad_process(): kept[0].kill(); kept[0].wait()
'''


@pytest.fixture
def outcomes(tmp_path: Path) -> dict[str, str]:
    """How each example ends, run by a pytest of its own with our conftest.py and a machine's variables set."""
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_examples.py").write_text(EXAMPLES)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
    )
    machine = {
        "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/machines-own",
        "HOME": "/machines-own",
        "NOTIFY_SOCKET": "/machines-own",
        "GPUSUPERVISOR_TENANT": "machines-own",
        "http_proxy": "http://machines-own",
        "PATH": "/usr/bin:/bin",
    }
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--tb=no"],
        cwd=tmp_path,
        env=machine,
        capture_output=True,
        text=True,
    )
    found: dict[str, str] = {}
    for line in ran.stdout.splitlines():
        name, _, outcome = line.partition("::")[2].partition(" ")
        if outcome.strip().startswith(("PASSED", "FAILED", "ERROR")):
            found[name] = outcome.split()[0]  # a test that passed and then left something behind: the later ERROR
    return found


def test_the_guards_catch_what_they_are_for_and_nothing_else(outcomes: dict[str, str]) -> None:
    clean = {name: outcome for name, outcome in outcomes.items() if not name.startswith("test_bad_")}
    assert clean == dict.fromkeys(clean, "PASSED")
    assert len(clean) == EXAMPLES.count("def test_clean") + 1
    assert {name: outcome for name, outcome in outcomes.items() if name.startswith("test_bad_")} == {
        "test_bad_process": "ERROR",
        "test_bad_descriptor": "ERROR",
        "test_bad_task": "ERROR",
        "test_bad_blocking_call": "FAILED",
    }
