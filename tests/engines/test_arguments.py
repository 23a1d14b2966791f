"""Command lines are read as each engine reads its own."""

import pytest

from gpusupervisor.engines.arguments import given_on
from gpusupervisor.engines.tables import TABLES


@pytest.mark.parametrize(
    ("engine", "line", "expected"),
    [
        ("comfyui", "python main.py --highvram --port 8188", {"--highvram": ""}),
        ("comfyui", "python main.py --reserve-vram 0.6 --reserve-vram 2", {"--reserve-vram": "2"}),
        ("comfyui", "python main.py --reserve-vram=1.5", {"--reserve-vram": "1.5"}),
        ("comfyui", "python main.py --reserve 1.5 --disable-smart",
         {"--reserve-vram": "1.5", "--disable-smart-memory": ""}),
        ("comfyui", "python main.py --ca none", {}),  # ambiguous
        ("comfyui", "python main.py --async-offload --highvram", {"--async-offload": "", "--highvram": ""}),
        ("comfyui", "python main.py --async-offload 4", {"--async-offload": "4"}),
        ("comfyui", "python main.py --async-offload --disable-async-offload", {}),
        ("comfyui", "python main.py -- --highvram", {}),
        ("comfyui", "python main.py --reserve-vram", {"--reserve-vram": ""}),
        ("llama.cpp", "llama-server -ngl 99 -c 4096 -np 2",
         {"--n-gpu-layers": "99", "--ctx-size": "4096", "--parallel": "2"}),
        ("llama.cpp", "llama-server --gpu_layers 10 -ngl -1", {"--n-gpu-layers": "-1"}),
        ("llama.cpp", "llama-server --ctx-size=4096", {}),  # it takes no "="
        ("llama.cpp", "llama-server --ctx 4096", {}),  # nor abbreviations
        ("llama.cpp", "llama-server --no-slots --slots", {}),
        ("llama.cpp", "llama-server --slots --no-slots", {"--no-slots": ""}),
        ("llama.cpp", "llama-server -fa --metrics", {"--flash-attn": "", "--metrics": ""}),
        ("llama.cpp", "llama-server -fa on -m x.gguf", {"--flash-attn": "on"}),
        ("llama.cpp", "llama-server --sleep-idle-seconds 300", {"--sleep-idle-seconds": "300"}),
        ("vllm", "vllm serve m --gpu_memory_utilization 0.5", {"--gpu-memory-utilization": "0.5"}),
        ("vllm", "vllm serve m --enable-sleep-mode --no-enable-sleep-mode", {}),
        ("vllm", "vllm serve m --api-key a b --max-model-len 8192", {"--api-key": "a b", "--max-model-len": "8192"}),
        ("vllm", "vllm serve m -tp=2", {"--tensor-parallel-size": "2"}),
        ("sglang", "python -m sglang.launch_server --tp 2 --enable-memory-saver",
         {"--tp-size": "2", "--enable-memory-saver": ""}),
        ("llama-swap", "llama-swap -config /etc/swap.yaml --listen :8080",
         {"--config": "/etc/swap.yaml", "--listen": ":8080"}),
        ("llama-swap", "llama-swap -config=/etc/swap.yaml", {"--config": "/etc/swap.yaml"}),
        ("localai", "local-ai run --single-active-backend", {"--single-active-backend": ""}),
        ("koboldcpp", "koboldcpp --gpulayers --usecublas normal 0 mmq",
         {"--gpulayers": "", "--usecuda": "normal 0 mmq"}),
        ("koboldcpp", "koboldcpp.py --model a.gguf", {"--model": "a.gguf"}),  # not short for --model-draft
        ("koboldcpp", "koboldcpp --gpulayers -1", {"--gpulayers": "-1"}),
        ("text-generation-webui", "python server.py --n_ctx 8192 --api", {"--ctx-size": "8192", "--api": ""}),
        ("tabbyapi", "python main.py --gpu-split 20 24 --max-seq-len 8192",
         {"--gpu-split": "20 24", "--max-seq-len": "8192"}),
        ("whisper.cpp", "whisper-server -m x.bin -ng", {"--model": "x.bin", "--no-gpu": ""}),
        ("automatic1111", "python launch.py --api --medvram", {"--api": "", "--medvram": ""}),
    ],
)  # fmt: skip
def test_flags_are_read_as_the_engine_reads_them(engine: str, line: str, expected: dict[str, str]) -> None:
    assert given_on(TABLES[engine], line.split()) == expected


@pytest.mark.parametrize("engine", sorted(TABLES))
def test_a_command_line_without_flags_gives_nothing(engine: str) -> None:
    assert given_on(TABLES[engine], ()) == given_on(TABLES[engine], ("program", "-", "", "-x", "--", "--api")) == {}
