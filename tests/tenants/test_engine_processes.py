"""Every engine's processes, as they look on real machines, are its own and nobody else's."""

import itertools
from collections.abc import Sequence

import pytest

from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.tenants.catalog import SHIPPED, load_catalog
from gpusupervisor.tenants.instances import base_and_label
from gpusupervisor.tenants.matching import Recognition, match_process

from .people import COMPUTE, GRAPHICS, HEX, USER, who

CATALOG = load_catalog([SHIPPED])
DOCKER = f"/system.slice/docker-{HEX}.scope"
Chain = tuple[ProcessIdentity, ...]
"""A process and its ancestors, itself first."""


def chain(*lines: str, cgroup: str = "", comm: str = "python3", exes: Sequence[str] = (), folder: str = "") -> Chain:
    """Processes from their command lines, the one that holds VRAM first, each below the next."""
    found: list[ProcessIdentity] = []
    for number, line in reversed(list(enumerate(lines))):
        words = line.split()
        exe = exes[number] if number < len(exes) else (words[0] if words and words[0].startswith("/") else "")
        place = {"cgroup": cgroup} if cgroup else {}
        parents = list(reversed(found))
        found.append(
            who(100 + number, line, executable=exe, comm=comm, folder=folder, parents=parents, **place)  # type: ignore[arg-type]
        )
    return tuple(reversed(found))


def unit(name: str) -> Chain:
    return chain("/opt/app/bin/python3 serve.py", cgroup=f"/system.slice/{name}")


def user_unit(name: str) -> Chain:
    return chain("/opt/app/bin/python3 serve.py", cgroup=f"{USER}/{name}")


PY = "/usr/bin/python3.11"
LLAMA_SERVER = "/usr/local/bin/llama-server"
ROUTER_CHILD = (
    f"{LLAMA_SERVER} --host 127.0.0.1 --metrics --port 47645 --alias a-smollm2 --ctx-size 1024 --model /m/a.gguf"
)

PROCESSES: dict[str, tuple[Chain, ...]] = {
    "ollama": (
        chain("/usr/local/bin/ollama serve"),
        chain("/opt/ollama-linux-amd64 serve"),
        chain("/opt/ollama-linux-amd64/bin/ollama serve"),
        chain("/nix/store/abc-ollama-0.30/bin/.ollama-wrapped serve"),
        chain("/usr/lib/ollama/llama-server --model /m --port 38619 --host 127.0.0.1 --no-webui --offline -np 1",
              "/usr/local/bin/ollama serve"),
        chain("/bin/ollama runner --ollama-engine --model /home/alice/.ollama/models/blobs/sha256-1 --port 41",
              "/bin/ollama serve", cgroup=DOCKER),
        unit("ollama.service"), user_unit("ollama.service"),
    ),
    "comfyui": (
        chain("python3 /opt/ComfyUI/main.py --listen 0.0.0.0 --port 8188", exes=[PY]),
        chain("python3 main.py", exes=[PY], folder="/opt/comfy"),
        chain("python main.py --listen 0.0.0.0", exes=[PY], folder="/app"),
        chain("python main.py --cuda-device 0", exes=[PY], folder="/home/a/ComfyUI"),
        chain("python3 /app/ComfyUI/main.py --listen", exes=[PY], cgroup=DOCKER),
        unit("comfyui.service"), unit("comfyui-gpu0.service"), user_unit("comfyui.service"),
    ),
    "llama-server": (
        chain("/usr/bin/llama-server-cuda -m /m/a.gguf"),
        chain("/usr/bin/python3 -m llama_cpp.server --model /m/a.gguf", exes=[PY]),
        chain(f"{LLAMA_SERVER} -m /m/qwen.gguf --host 0.0.0.0 --port 8080 -ngl 99"),
        chain("/app/llama-server -hf ggml-org/gemma", cgroup=DOCKER),
        chain("llama-server -m m.gguf", exes=["/nix/store/abc-llama-cpp/bin/llama-server"]),
        chain("llama serve -m m.gguf", exes=["/usr/bin/llama"]),
        unit("llama-server.service"), user_unit("llama-server@qwen.service"),
    ),
    "llama-router": (
        chain("/usr/local/bin/llama-server"),
        chain(ROUTER_CHILD, f"{LLAMA_SERVER} --models-dir /m --port 8080"),
        chain(ROUTER_CHILD, "llama-server --models-preset /etc/llama.ini", exes=[LLAMA_SERVER, LLAMA_SERVER]),
        chain(f"{LLAMA_SERVER} --models-dir /m"),
        unit("llama-router.service"),
    ),
    "llama-swap": (
        chain(f"{LLAMA_SERVER} -m /m/a.gguf --port 5800", "/usr/local/bin/llama-swap --config c.yaml --listen :8080"),
        chain(ROUTER_CHILD, f"{LLAMA_SERVER} --models-dir /m", "/usr/local/bin/llama-swap --config c.yaml"),
        chain("VLLM::EngineCore", "/v/bin/python3 /v/bin/vllm serve m --port 5801",
              "/opt/llama-swap-linux-amd64 -config c.yaml", exes=["", PY]),
        chain(f"{LLAMA_SERVER} -m a", "/app/llama-swap -config /app/config.yaml -listen 0.0.0.0:8080", cgroup=DOCKER),
        unit("llama-swap.service"), user_unit("llama-swap.service"),
    ),
    "vllm": (
        chain("VLLM::EngineCore", comm="VLLM::EngineCor"), chain("", comm="VLLM::Worker_TP"),
        chain("/v/bin/python3 /v/bin/vllm serve Qwen/Qwen3 --port 8001", exes=[PY]),
        chain("python3 -m vllm.entrypoints.openai.api_server --model m", exes=[PY], cgroup=DOCKER),
        unit("vllm.service"), unit("vllm@qwen.service"),
    ),
    "sglang": (
        chain("sglang::scheduler", comm="sglang::schedul"), chain("sglang::scheduler_TP0", comm="sglang::schedul"),
        chain("", comm="sglang::detoken"),
        chain("python3 -m sglang.launch_server --model-path m --port 30000", exes=[PY], cgroup=DOCKER),
        unit("sglang.service"),
    ),
    "localai": (
        chain("/usr/local/bin/local-ai run --address :8080"),
        chain("/backends/cuda12-llama-cpp/llama-cpp-avx2 --addr 127.0.0.1:40001", "/local-ai run", cgroup=DOCKER),
        chain("/backends/diffusers/venv/bin/python backend.py --addr 127.0.0.1:40002", "/usr/bin/local-ai"),
        unit("local-ai.service"), unit("localai.service"),
    ),
    "lm-studio": (
        chain("/home/a/.lmstudio/.internal/utils/node worker.js", comm="node"),
        chain("/home/a/lm-studio/.internal/utils/node llmworker.js", comm="node"),
        chain("/home/a/.lmstudio/llmster/0.0.1/llmster"),
        chain("/home/a/.lmstudio/extensions/backends/linux-llama-cuda12/llama-server --model m"),
        chain("/tmp/.mount_LM-StuX1/lm-studio --no-sandbox"),
        unit("lmstudio.service"), user_unit("lmstudio.service"),
    ),
    "automatic1111": (
        chain("python3 /home/a/stable-diffusion-webui/launch.py --api --xformers", exes=[PY]),
        chain("python launch.py --api", exes=[PY], folder="/home/a/stable-diffusion-webui"),
        chain("python3 -u launch.py --api --port 7861", exes=[PY], folder="/srv/stable-diffusion-webui-forge"),
        chain("python webui.py --api", exes=[PY], folder="/srv/stable-diffusion-webui-reForge"),
        chain("/opt/stable-diffusion-webui/venv/bin/python launch.py --api", cgroup=DOCKER),
        unit("stable-diffusion-webui.service"), unit("automatic1111.service"), user_unit("sd-webui-forge.service"),
    ),
    "invokeai": (
        chain("/opt/venv/bin/python3 /opt/venv/bin/invokeai-web", exes=[PY], cgroup=DOCKER),
        chain("/home/a/invokeai/.venv/bin/python /home/a/invokeai/.venv/bin/invokeai-web --root /srv", exes=[PY]),
        unit("invokeai.service"),
    ),
    "tabbyapi": (
        chain("python3 /srv/tabbyAPI/main.py --port 5000", exes=[PY]),
        chain("python main.py", exes=[PY], folder="/home/a/tabbyAPI"),
        chain("python start.py --host 0.0.0.0", exes=[PY], folder="/home/a/TabbyAPI-main"),
        chain("/home/a/tabbyAPI/venv/bin/python main.py"),
        unit("tabbyapi.service"), user_unit("tabby-api.service"),
    ),
    "koboldcpp": (
        chain("/home/a/koboldcpp-linux-x64 --model m.gguf --usecublas"),
        chain("/home/a/koboldcpp-linux-x64-nocuda --model m.gguf", "/home/a/koboldcpp-linux-x64-nocuda --model m.gguf"),
        chain("python3 koboldcpp.py --model m --port 5001", exes=[PY], folder="/home/a/koboldcpp"),
        chain("python3 /opt/koboldcpp/koboldcpp.py --model m", exes=[PY], cgroup=DOCKER),
        unit("koboldcpp.service"),
    ),
    "text-generation-webui": (
        chain("python3 /srv/text-generation-webui/server.py --api --listen", exes=[PY]),
        chain("python server.py --api", exes=[PY], folder="/home/a/text-generation-webui"),
        chain("/home/a/text-generation-webui/installer_files/env/bin/python server.py --api"),
        chain("./portable_env/bin/python3 server.py --portable --api", exes=[PY], folder="/home/a/textgen-4.7.3/app"),
        chain("/x/env/lib/python3.11/site-packages/llama_cpp_binaries/bin/llama-server --model m --port 56789",
              "python3 /srv/text-generation-webui/server.py --api", exes=["", PY]),
        unit("text-generation-webui.service"), user_unit("oobabooga.service"),
    ),
    "lemonade": (
        chain("/usr/bin/lemond"),
        chain("/home/a/.cache/lemonade/bin/llamacpp/cuda/llama-server -m a --port 8001", "/usr/bin/lemond --port 9000"),
        unit("lemond.service"), user_unit("lemonade-server.service"),
    ),
    "speaches": (
        chain("/home/ubuntu/speaches/.venv/bin/python /x/uvicorn --factory --host 0.0.0.0 speaches.main:create_app",
              exes=[PY], cgroup=DOCKER),
        chain("python3 -m uvicorn --factory speaches.main:create_app --port 8000", exes=[PY]),
        chain("uvicorn faster_whisper_server.main:app", exes=[PY]),
        unit("speaches.service"),
    ),
    "whisper-server": (
        chain("/usr/bin/whisper-server -m /m/ggml-large.bin --port 8080"),
        chain("./build/bin/whisper-server -m ggml-base.bin", exes=["/home/a/whisper.cpp/build/bin/whisper-server"]),
        unit("whisper-server.service"), user_unit("whisper-server.service"),
    ),
}  # fmt: skip

SHARED = {("llama-server", "ollama"), ("llama-server", "text-generation-webui"), ("llama-server", "llama-swap"),
          ("llama-server", "lm-studio"), ("llama-server", "lemonade"),
          ("llama-server", "llama-router"), ("llama-router", "llama-swap"), ("vllm", "llama-swap")}  # fmt: skip
"""Whose definition, if it were alone, would also know a process of whom: somebody else starts the same program."""


def recognize(processes: Chain, only: str = "") -> Recognition | None:
    definitions = [each for each in CATALOG.definitions.values() if only in ("", each.id)]
    return match_process(processes[0], COMPUTE, definitions, processes[1:])


def test_every_shipped_engine_has_its_processes_here() -> None:
    assert set(PROCESSES) == set(CATALOG.definitions) - {"desktop"}


@pytest.mark.parametrize(
    ("engine", "processes"), [(engine, each) for engine, chains in PROCESSES.items() for each in chains]
)
def test_an_engines_process_is_its_own(engine: str, processes: Chain) -> None:
    found = recognize(processes)
    assert found is not None
    assert base_and_label(found.tenant)[0] == found.definition_id == engine


@pytest.mark.parametrize(
    ("other", "engine"), [pair for pair in itertools.permutations(PROCESSES, 2) if pair not in SHARED]
)
def test_no_other_definition_knows_it(other: str, engine: str) -> None:
    assert [recognize(processes, only=other) for processes in PROCESSES[engine]] == [None] * len(PROCESSES[engine])


def test_none_of_them_draws_the_screen_and_none_is_recognised_by_a_session() -> None:
    for processes in itertools.chain(*PROCESSES.values()):
        found = match_process(processes[0], GRAPHICS, CATALOG.definitions.values(), processes[1:])
        assert found is not None
        assert found.definition_id != "desktop"


@pytest.mark.parametrize(
    "processes",
    [
        chain("python3 train.py --port 8080", exes=[PY]),
        chain("python3 main.py --port 5000", exes=[PY], folder="/home/a/app"),
        chain("python3 /srv/app/server.py --api", exes=[PY]),
        chain("python3 launch.py", exes=[PY], folder="/home/a/robot"),
        chain("uvicorn main:app --port 8000", exes=[PY]),
        chain("/usr/bin/tabby serve --model m"),
        chain("/home/a/.lmstudio/bin/lms server start --port 1234"),
        chain("/usr/bin/blender"),
        chain("node server.js", exes=["/usr/bin/node"], comm="node"),
        unit("forgejo.service"), unit("prometheus.service"), unit("node-red.service"), unit("docker.service"),
    ],
)  # fmt: skip
def test_a_stranger_is_nobodys_though_its_port_or_script_is_like_theirs(processes: Chain) -> None:
    assert recognize(processes) is None


def test_what_is_started_first_owns_what_is_below_it() -> None:
    found = recognize(PROCESSES["llama-swap"][1])
    assert found is not None
    assert (found.tenant, found.why) == ("llama-swap", "below /usr/local/bin/llama-swap")
    assert found.port is None, "a model's port is not llama-swap's"


@pytest.mark.parametrize(
    ("engine", "line", "tenant"),
    [
        ("llama-swap", "/bin/llama-swap --listen :9292", "llama-swap@9292"),
        ("localai", "/bin/local-ai run --address 0.0.0.0:8090", "localai@8090"),
        ("whisper-server", "/bin/whisper-server -m m --port 8090", "whisper-server@8090"),
        ("koboldcpp", "/x/koboldcpp --model m --port 5002", "koboldcpp@5002"),
        ("sglang", "/v/bin/sglang serve m --port 30001", "sglang@30001"),
    ],
)
def test_two_of_an_engine_are_told_apart_by_their_ports(engine: str, line: str, tenant: str) -> None:
    found = recognize(chain(line))
    assert found is not None
    assert (found.definition_id, found.tenant) == (engine, tenant)


@pytest.mark.parametrize(("engine", "worker"), [("vllm", "VLLM::EngineCore"), ("sglang", "sglang::scheduler")])
@pytest.mark.parametrize(
    ("above", "orphan"),
    [(("bash",), True), (("tmux: server",), True), (("/usr/bin/python3 my_inference.py",), False), ((), False)],
)
def test_a_worker_that_a_shell_has_adopted_is_an_orphan(
    engine: str, worker: str, above: tuple[str, ...], orphan: bool
) -> None:
    """Its server was killed; a program of one's own that uses the engine as a library is no shell."""
    below = above or {"vllm": ("/opt/v/bin/python /opt/v/bin/vllm serve m",), "sglang": ("sglang serve m",)}[engine]
    found = recognize(chain(worker, *below, comm=worker[:15]), engine)
    assert found is not None
    assert found.orphan is orphan
