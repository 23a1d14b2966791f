"""Engines of an ordinary user that hold no VRAM: in a unit of the user's own, and started by hand."""

from collections.abc import Iterator

import pytest

from gpusupervisor.bus.names import engine_path, tenant_path
from tests.system.conftest import BUS_NAME, UNIT, USER
from tests.system.machine import Machine
from tests.system.test_simulated_card import CARD, PYTHON, card, properties  # noqa: F401  (card is a fixture)

IN_UNIT, BY_HAND = "comfyui@comfyui-mine", "comfyui@8232"
FOLDER = f"/home/{USER}/idle/ComfyUI"
ARGUMENTS = ("--card", CARD, "--context", "0")
MAIN = f"""\
import sys
sys.argv += {(*ARGUMENTS, "--port", "8232")!r}
from gpusupervisor.simulation.engines.comfyui import main
main()
"""
"""Where it listens is in a file, so to say: nothing on its command line tells it."""
AS_UNIT = ("systemd-run", "--quiet", "--wait", "--collect")
"""As a unit: logind of systemd 257 answers nobody whose control group is outside the machine, as ours is."""
LONG = 60.0
"""Seconds: the next scan may be ten away, and the bus may have to start the helper."""


@pytest.fixture(scope="module")
def engines(card: Machine) -> Iterator[Machine]:  # noqa: F811
    """Two of them; none of their command lines says more than that a script or module is run."""
    uid = card.output("id", "--user", USER)
    own = {"XDG_RUNTIME_DIR": f"/run/user/{uid}"}
    card.run(*AS_UNIT, "loginctl", "enable-linger", USER)
    card.run("systemctl", "start", f"user@{uid}.service")
    run = ("systemd-run", "--user", "--quiet", "--unit=comfyui-mine.service", "--setenv=CUDA_VISIBLE_DEVICES=0")
    module = ("-m", "gpusupervisor.simulation.engines.comfyui", "--port", "8231")
    card.run(*run, "--setenv=HF_TOKEN=hunter2", PYTHON, *module, *ARGUMENTS, user=USER, environment=own)
    card.write(f"{FOLDER}/main.py", MAIN)
    scope = ("systemd-run", "--scope", "--quiet", "--unit=idle-by-hand", f"--uid={USER}")
    command = " ".join((*scope, f"--working-directory={FOLDER}", "env", "-i", "CUDA_VISIBLE_DEVICES=1", PYTHON))
    card.run("sh", "-c", f"cd {FOLDER}; exec setsid --fork {command} main.py >/dev/null 2>&1 </dev/null")
    yield card
    card.run("systemctl", "--user", "stop", "comfyui-mine.service", user=USER, environment=own)
    card.run("systemctl", "stop", "idle-by-hand.scope")
    card.run(*AS_UNIT, "loginctl", "disable-linger", USER)
    card.run("systemctl", "stop", f"user@{uid}.service")


def wait_for_setting(machine: Machine, engine: str, value: str) -> dict[str, object]:
    """Wait until an engine shows the GPU that its environment names; returns what it shows."""

    def is_shown() -> dict[str, object]:
        shown = properties(machine, engine_path(engine), f"{BUS_NAME}.Engine")
        listed = shown.get("Settings") or []
        assert isinstance(listed, list)
        found = {each["name"]["data"]: (each["value"]["data"], each["source"]["data"]) for each in listed}
        is_known = found.get("CUDA_VISIBLE_DEVICES") == (value, "environment") and shown["Reachable"]
        return shown if is_known else {}

    return machine.wait_until(f"{engine} shows its settings", is_shown, UNIT, LONG)


@pytest.mark.parametrize(("engine", "value", "port"), [(IN_UNIT, "0", 8231), (BY_HAND, "1", 8232)])
def test_an_idle_engine_of_a_user_shows_what_it_is_set_to(engines: Machine, engine: str, value: str, port: int) -> None:
    shown = wait_for_setting(engines, engine, value)
    assert (shown["Endpoint"], shown["SettingsProblem"]) == (f"http://127.0.0.1:{port}", "")
    assert "hunter2" not in str(shown)
    assert properties(engines, tenant_path(engine), f"{BUS_NAME}.Tenant")["Holding"] == 0


def test_it_shows_it_again_after_a_restart_of_the_supervisor(engines: Machine) -> None:
    wait_for_setting(engines, BY_HAND, "1")
    engines.run("systemctl", "restart", UNIT)
    wait_for_setting(engines, IN_UNIT, "0")
    wait_for_setting(engines, BY_HAND, "1")
