"""Every engine shows what it is by what everybody may read of it, and what only names one does not."""

from dataclasses import replace

import pytest

from gpusupervisor.tenants.catalog import SHIPPED, load_catalog
from gpusupervisor.tenants.signs import EngineSigns, signs_of
from tests.tenants.people import HEX, USER, who
from tests.tenants.test_engine_processes import PROCESSES, Chain

SIGNS = signs_of(load_catalog([SHIPPED]).definitions.values())
SERVERS = [
    (engine, chain)
    for engine, chains in PROCESSES.items()
    for chain in chains
    if engine != "desktop" and chain[-1].command_line
    and (chain[-1].user_unit or not chain[-1].unit.endswith(".service"))
]  # fmt: skip
"""Those in system units are left out: systemd tells of them."""


@pytest.mark.parametrize(("engine", "chain"), SERVERS)
def test_every_engines_outermost_process_shows_it(engine: str, chain: Chain) -> None:
    assert SIGNS.shown_by(chain[-1]), engine


@pytest.mark.parametrize(("engine", "chain"), SERVERS)
def test_it_is_suspected_while_executable_and_folder_are_hidden(engine: str, chain: Chain) -> None:
    hidden = replace(chain[-1], executable="", working_directory="")
    assert SIGNS.shown_by(hidden) or SIGNS.could_be_shown_by(hidden), engine


@pytest.mark.parametrize(
    "line",
    [
        "grep -r llama-server /etc", "grep -r /usr/bin/llama-server -n", "vim /opt/ComfyUI/main.py", "pip install vllm",
        "ssh -L 8080:localhost:8080 box /usr/bin/llama-server -m m.gguf", "less /var/log/ollama/serve",
        "bash -c /opt/bin/llama-server --port 80", "sh -c exec python3 /opt/ComfyUI/main.py", "sudo /b/llama-server",
        "python3 -c import os; os.system('/usr/bin/llama-server ')", "python3 /usr/bin/pip install vllm sglang",
        "docker run --gpus all -p 8000:8000 vllm/vllm-openai python3 -m vllm.entrypoints.openai.api_server",
        "gdbserver :2345 /usr/bin/llama-server -m m", "strace -f /usr/bin/llama-server", "tail -f sglang.launch_server",
        "python3 -m http.server --directory /opt/ComfyUI/main.py", "rsync /opt/ComfyUI/main.py box:", "ollama.sh serve",
        "systemd-run --user /v/bin/vllm serve m", "tmux new /v/bin/vllm serve m", "watch llama-server --list-devices",
        "code /srv/text-generation-webui/server.py", "python3 /usr/bin/black /srv/stable-diffusion-webui/launch.py",
        "", "-bash", "python3", "python3 -m", "node",
    ],
)  # fmt: skip
def test_what_only_names_an_engine_is_none(line: str) -> None:
    identity = who(5, line, executable=line.split(" ", 1)[0] if line.startswith("/") else "")
    assert not SIGNS.shown_by(identity)
    assert not SIGNS.could_be_shown_by(replace(identity, working_directory=""))


@pytest.mark.parametrize(
    "line",
    [
        "/v/bin/python /v/bin/uvicorn --factory speaches.main:create_app", "python -m uvicorn speaches.main:app",
        "python3 -X utf8 /opt/ComfyUI/main.py", "python3 -m vllm.entrypoints.openai.api_server --model m",
    ],
)  # fmt: skip
def test_what_an_app_server_serves_and_an_interpreter_runs_is_the_program(line: str) -> None:
    assert SIGNS.shown_by(who(5, line))


def test_a_script_that_may_be_an_engines_is_suspected_only_while_its_folder_is_not_known() -> None:
    assert SIGNS.could_be_shown_by(who(5, "python main.py --listen"))
    assert not SIGNS.could_be_shown_by(who(5, "python main.py", folder="/srv/shop"))
    assert not SIGNS.could_be_shown_by(who(5, "python /srv/shop/main.py"))
    assert not SIGNS.could_be_shown_by(who(5, "python manage.py"))
    assert not SIGNS.shown_by(who(5, "python main.py", folder="/srv/shop"))
    assert SIGNS.shown_by(who(5, "python main.py", folder="/home/a/ComfyUI"))


def test_user_units_and_containers_that_are_named_show_it_whatever_runs_there() -> None:
    signs = EngineSigns(user_units=("app.service",), containers=("*/docker-3f2a*.scope",))
    assert signs.shown_by(who(5, "/bin/x", cgroup=f"{USER}/app.service"))
    assert signs.shown_by(who(5, "/bin/x", cgroup=f"/system.slice/docker-{HEX}.scope"))
    assert not signs.shown_by(who(5, "/bin/x", cgroup=f"{USER}/other.service"))
    assert not signs.shown_by_program(who(5, "/bin/x", cgroup=f"{USER}/app.service"))


def test_only_engines_give_signs() -> None:
    definitions = load_catalog([SHIPPED]).definitions
    assert signs_of([definitions["desktop"]]) == EngineSigns()
