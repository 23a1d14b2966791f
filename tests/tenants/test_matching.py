"""Which tenant a process belongs to, with the shipped definitions and with made-up ones."""

import functools

import pytest

from gpusupervisor.gpu.sample import ProcessKind
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.tenants.catalog import SHIPPED, Catalog, load_catalog
from gpusupervisor.tenants.definition import Endpoint, Match, TenantDefinition
from gpusupervisor.tenants.listening import Address, address_on_command_line, with_address
from gpusupervisor.tenants.matching import Recognition, match_process
from gpusupervisor.tenants.recognizer import Recognizer

from .people import COMPUTE, GRAPHICS, HEX, SESSION, USER, who

RUNNER = "/usr/lib/ollama/llama-server --model /m --port 38619 --host 127.0.0.1 --no-webui --offline -np 1"


@functools.cache
def shipped() -> Catalog:
    return load_catalog([SHIPPED])


def recognize(
    identity: ProcessIdentity, *ancestors: ProcessIdentity, kinds: frozenset[ProcessKind] = COMPUTE
) -> Recognition | None:
    return match_process(identity, kinds, shipped().definitions.values(), ancestors)


def tenant(identity: ProcessIdentity, *ancestors: ProcessIdentity, kinds: frozenset[ProcessKind] = COMPUTE) -> str:
    found = recognize(identity, *ancestors, kinds=kinds)
    return found.tenant if found else ""


def define(tenant_id: str, **match: tuple[str, ...]) -> TenantDefinition:
    return TenantDefinition(tenant_id, tenant_id, Match(**match))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        (who(7, "/usr/bin/ollama serve", cgroup="/system.slice/ollama.service"), "ollama"),
        (who(7, RUNNER, executable="/usr/lib/ollama/llama-server"), "ollama"),
        (who(7, RUNNER), "ollama"),
        (who(7, "ollama runner --model /m --port 1"), "ollama"),
        (who(7, "/tmp/ollama12/runners/cuda_v11/ollama_llama_server --model m"), "ollama"),
        (who(7, "/opt/llama/llama-server -m m.gguf"), "llama-server"),
        (who(7, "llama-server -m m.gguf --port 8081"), "llama-server@8081"),
        (who(7, "python3 /opt/ComfyUI/main.py --listen"), "comfyui"),
        (who(7, "python ComfyUI/main.py --port 8188"), "comfyui"),
        (who(7, "python3 /opt/ComfyUI/main.py --port=8189"), "comfyui@8189"),
        (who(7, "/opt/ComfyUI/venv/bin/python main.py"), "comfyui"),
        (who(7, "python3 main.py", cgroup="/system.slice/comfyui-gpu0.service"), "comfyui@comfyui-gpu0"),
        (who(7, "python3 main.py", cgroup="/system.slice/system-comfyui.slice/comfyui@gpu1.service"), "comfyui@gpu1"),
        (who(7, "python3 main.py", cgroup=f"{USER}/comfyui.service"), "comfyui"),
        (who(7, "python3 /x/ComfyUI/main.py", cgroup=f"/system.slice/docker-{HEX}.scope"), "comfyui@3f2a3f2a3f2a"),
        (who(7, "python3 /x/ComfyUI/main.py --port 8190", cgroup=f"{USER}/app-kitty-1.scope"), "comfyui@8190"),
        (who(7, "VLLM::EngineCore", comm="VLLM::EngineCor"), "vllm"),
        (who(7, "", comm="VLLM::Worker_TP"), "vllm"),
        (who(7, "/v/bin/python3 /v/bin/vllm serve m --port 8001"), "vllm@8001"),
        (who(7, "python main.py", folder="/home/a/ComfyUI"), "comfyui"),
        (who(7, "python -u main.py --listen", folder="/home/a/ComfyUI-dev", ports=(8190,)), "comfyui@8190"),
        (who(7, "python ../main.py", folder="/home/a/ComfyUI/models"), "comfyui"),
        (who(7, "python train.py", folder="/home/a/ComfyUI"), ""),
        (who(7, "python3 train.py"), ""),
        (who(7, "python3 main.py --port 8188"), ""),
    ],
)
def test_processes_are_recognised_by_the_shipped_definitions(identity: ProcessIdentity, expected: str) -> None:
    assert tenant(identity) == expected


@pytest.mark.parametrize(
    "identity",
    [
        who(7, "/usr/bin/gnome-shell", executable="/usr/bin/gnome-shell"),
        who(7, "/usr/lib/xorg/Xorg :0", executable="/usr/lib/xorg/Xorg"),
        who(7, "/usr/bin/kwin_wayland", executable="/usr/bin/kwin_wayland"),
        who(7, "/usr/lib/firefox/firefox", executable="/usr/lib/firefox/firefox"),
        who(7, "/opt/Slack/slack --type=gpu-process --x", executable="/opt/Slack/slack"),
        who(7, "/x", executable="/x", cgroup="/system.slice/gdm.service"),
        who(7, "/x", executable="/x", cgroup=f"{USER}/org.gnome.Shell@wayland.service"),
    ],
)
def test_what_draws_the_screen_is_the_desktop_and_what_computes_is_not(identity: ProcessIdentity) -> None:
    assert tenant(identity, kinds=GRAPHICS) == "desktop"
    assert tenant(identity, kinds=COMPUTE) == ""


def test_a_game_started_from_the_shell_is_not_the_desktop() -> None:
    shell = who(5, "/usr/bin/gnome-shell", executable="/usr/bin/gnome-shell")
    assert tenant(who(7, "/games/doom", executable="/games/doom", parents=[shell]), shell, kinds=GRAPHICS) == ""


def test_a_llama_server_below_ollama_is_ollamas_wherever_it_is_installed() -> None:
    server = who(5, "/srv/bin/ollama serve", executable="/srv/bin/ollama")
    runner = who(7, RUNNER.replace("/usr/lib/ollama", "/opt"), executable="/opt/llama-server", parents=[server])
    found = recognize(runner, server)
    assert found is not None
    assert (found.tenant, found.why, found.port) == ("ollama", "below /srv/bin/ollama", None)
    assert tenant(runner) == "llama-server@38619", "without its server it is just a llama-server"


def test_a_child_without_a_pattern_of_its_own_counts_to_its_ancestor() -> None:
    server = who(5, "vllm serve m --port 8001", executable="/v/bin/vllm")
    shell = who(6, "sh", executable="/bin/sh", parents=[server])
    child = who(7, "helper", executable="/v/helper", parents=[shell, server])
    assert tenant(child, shell, server) == "vllm@8001", "at its server's port"


def test_a_workers_own_port_is_not_the_tenants() -> None:
    router = who(5, "llama-server --models-dir /m", executable="/usr/bin/llama-server")
    child = who(7, "llama-server --port 40123 --alias m", executable="/usr/bin/llama-server", parents=[router])
    assert tenant(child, router) == "llama-router"
    plain = who(5, "llama-server --port 8080", executable="/usr/bin/llama-server")
    assert tenant(child, plain) == "llama-server"


def test_units_beat_containers_beat_executables_beat_command_lines_beat_comms() -> None:
    identity = who(
        7, "/bin/app --x", executable="/bin/app", cgroup=f"/system.slice/a.service/docker-{HEX}.scope", comm="app"
    )
    ladder = [
        define("z-unit", units=("a.service",)),
        define("y-container", containers=("*docker-*",)),
        define("x-executable", executables=("/bin/app",)),
        define("b-command-line", command_lines=("/bin/app --x",)),
        define("a-comm", comms=("app",)),
    ]
    while ladder:
        found = match_process(identity, COMPUTE, reversed(ladder), ())
        assert found is not None
        assert found.definition_id == ladder.pop(0).id


def test_the_longer_literal_wins_then_the_id() -> None:
    identity = who(7, "/opt/app/bin/run", executable="/opt/app/bin/run")
    short, long = define("a", executables=("*/run",)), define("b", executables=("*/bin/run",))
    twin = define("c", executables=("*/bin/run",))
    for order in ((short, long, twin), (twin, long, short)):
        found = match_process(identity, COMPUTE, order, ())
        assert found is not None
        assert found.definition_id == "b"


def test_an_argv0_without_folder_counts_as_in_some_folder() -> None:
    assert tenant(who(7, "ollama serve")) == "ollama"


@pytest.mark.parametrize(
    ("identity", "ancestors", "orphan"),
    [
        (who(7, RUNNER), (), True),
        (
            who(7, RUNNER, parents=[who(5, "systemd --user", comm="systemd")]),
            (who(5, "systemd --user", comm="systemd"),),
            True,
        ),
        (
            who(7, RUNNER, parents=[who(5, "ollama serve", comm="ollama")]),
            (who(5, "ollama serve", comm="ollama"),),
            False,
        ),
        (who(7, RUNNER, cgroup="/system.slice/ollama.service"), (), False),
        (who(7, RUNNER, cgroup=f"{USER}/ollama.service"), (), False),
        (who(7, RUNNER, cgroup=f"/docker/{HEX}"), (), False),
        (who(7, "/usr/bin/ollama serve"), (), False),
        (who(7, RUNNER, parent_pid=99), (), False),
    ],
)
def test_an_orphan_is_a_worker_that_init_inherited_outside_units_and_containers(
    identity: ProcessIdentity, ancestors: tuple[ProcessIdentity, ...], orphan: bool
) -> None:
    found = recognize(identity, *ancestors)
    assert found is not None
    assert found.definition_id == "ollama"
    assert found.orphan is orphan


@pytest.mark.parametrize(
    ("arguments", "port"),
    [
        (("--port", "8189"), 8189),
        (("--port=8189",), 8189),
        (("--port", "1", "--port", "8190"), 8190),
        (("--port",), None),
        (("--port", "http"), None),
        (("--port", "99999"), None),
        (("--portal", "8189"), None),
        ((), None),
    ],
)
def test_the_last_valid_port_on_the_command_line_counts(arguments: tuple[str, ...], port: int | None) -> None:
    assert address_on_command_line(Endpoint("http://127.0.0.1:1", ("--port",)), arguments) == Address("", port)


def test_another_port_leaves_scheme_and_host() -> None:
    assert with_address("https://[::1]:80", Address("", 443)) == "https://[::1]:443"
    assert with_address("http://127.0.0.1", Address("", 8189)) == "http://127.0.0.1:8189"
    assert with_address("http://127.0.0.1:1", Address("::1", 2)) == "http://[::1]:2"
    assert with_address("http://127.0.0.1:1", Address("gpu.lan")) == "http://gpu.lan:1"


def test_labels_that_are_no_ids_are_made_some_and_stay_distinct() -> None:
    definition = TenantDefinition("app", "App", Match(units=("*.service",)), per_instance=True)
    names = [f"a\\x2d{'b' * 70}{end}.service" for end in ("1", "2")]
    found = [match_process(who(7, cgroup=f"/system.slice/{name}"), COMPUTE, [definition], ()) for name in names]
    ids = [each.tenant for each in found if each]
    assert len(set(ids)) == 2
    assert all(each.startswith("app@a_x2db") and len(each) <= 64 for each in ids)


def test_recognition_is_remembered_until_something_changes() -> None:
    recognizer = Recognizer(capacity=2)
    catalog = shipped()
    identity = who(7, "ollama serve")
    first = recognizer.recognize(catalog, identity, COMPUTE, {})
    assert recognizer.recognize(catalog, identity, COMPUTE, {}) is first
    renamed = who(7, "python3 /x/ComfyUI/main.py")
    found = recognizer.recognize(catalog, renamed, COMPUTE, {})
    assert found is not None
    assert found.tenant == "comfyui", "the same process runs another program"
    assert recognizer.recognize(load_catalog([]), renamed, COMPUTE, {}) is None, "another catalog"
    for pid in range(100, 110):
        recognizer.recognize(catalog, who(pid, "x"), COMPUTE, {})
    assert len(recognizer._known) == 2


def test_a_server_that_holds_vram_is_recognised_once_as_either() -> None:
    recognizer, catalog, identity = Recognizer(), shipped(), who(7, "ollama serve")
    kinds: tuple[frozenset[ProcessKind], ...] = (COMPUTE, frozenset())
    holder, server = (recognizer.recognize(catalog, identity, each, {}) for each in kinds)
    assert recognizer.recognize(catalog, identity, COMPUTE, {}) is holder
    assert recognizer.recognize(catalog, identity, frozenset(), {}) is server


def test_a_process_adopted_by_init_is_judged_anew() -> None:
    recognizer = Recognizer()
    server = who(5, "ollama serve")
    below = who(7, RUNNER, parents=[server])
    with_server = recognizer.recognize(shipped(), below, COMPUTE, {5: server, 7: below})
    adopted = who(7, RUNNER)
    without = recognizer.recognize(shipped(), adopted, COMPUTE, {7: adopted})
    assert with_server is not None
    assert without is not None
    assert (with_server.orphan, without.orphan) == (False, True)


def test_matching_never_looks_at_the_session_scope() -> None:
    assert tenant(who(7, "python3 /x/ComfyUI/main.py", cgroup=SESSION)) == "comfyui"


def port(identity: ProcessIdentity, *ancestors: ProcessIdentity) -> int | None:
    found = recognize(identity, *ancestors)
    assert found is not None
    return found.port


def test_a_script_started_by_hand_is_recognised_by_the_folder_and_says_so() -> None:
    found = recognize(who(7, "python main.py", folder="/home/a/ComfyUI"))
    assert found is not None
    assert found.why == "command line python /home/a/ComfyUI/main.py"


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        (who(7, "/x/llama-server -m m", ports=(9001,)), 9001),
        (who(7, "/x/llama-server -m m", ports=(8080, 9001)), 8080),
        (who(7, "/x/llama-server -m m", ports=(9001, 9002)), None),
        (who(7, "/x/llama-server -m m --port 9009", ports=(9001,)), 9009),
        (who(7, "/x/llama-server -m m"), None),
    ],
    ids=["the only one", "the usual one among several", "none of several", "a flag counts more", "none known"],
)
def test_the_port_is_where_the_process_really_listens(identity: ProcessIdentity, expected: int | None) -> None:
    assert port(identity) == expected


def test_a_workers_own_port_is_not_its_servers() -> None:
    server = who(5, "/usr/bin/python /v/bin/vllm serve m")
    assert port(who(7, "VLLM::EngineCore", parents=[server], ports=(40001,)), server) is None
    assert port(who(7, RUNNER, ports=(38619,))) is None


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("0.0.0.0:11500", 11500),
        (":11500", 11500),
        ("https://gpu.example:11500/ollama", 11500),
        ("[::1]:11500", 11500),
        ('"127.0.0.1:11500"', 11500),
        ("http://gpu.example", 80),
        ("HTTPS://gpu.example/", 11434),
        ("0.0.0.0", 11434),
        ("::1", 11434),
        ("host:99999", 11434),
        ("host:port", 11434),
        ("", None),
    ],
)
def test_a_runner_knows_its_servers_address_by_inheritance(address: str, expected: int | None) -> None:
    server = who(5, "/usr/bin/ollama serve")
    runner = who(7, RUNNER, parents=[server], ports=(38619,), variables={"OLLAMA_HOST": address})
    assert port(runner, server) == expected


def test_another_programs_address_is_not_looked_at() -> None:
    assert port(who(7, "/x/llama-server -m m", variables={"OLLAMA_HOST": ":11500"})) is None
