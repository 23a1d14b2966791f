"""Which configuration files engines read, and which of their keys are known: a closed list, so that nothing else is
ever read or told.

It is spelled out because the privileged reader goes by it too; a test holds it equal to the tables.
"""

import posixpath
from collections.abc import Mapping, Sequence
from typing import Literal

from gpusupervisor.processes.settings_files import Source

KEYS: Mapping[str, frozenset[str]] = {
    "invokeai": frozenset(
        {
            "device",
            "device_working_mem_gb",
            "enable_partial_loading",
            "generation_devices",
            "keep_ram_copy_of_weights",
            "max_cache_ram_gb",
            "max_cache_vram_gb",
            "model_cache_keep_alive_min",
            "pytorch_cuda_alloc_conf",
        }
    ),
    "koboldcpp": frozenset(
        {
            "CUDA_VISIBLE_DEVICES",
            "GGML_CUDA_ENABLE_UNIFIED_MEMORY",
            "admin",
            "admindir",
            "adminpassword",
            "adminunloadtimeout",
            "autofit",
            "c",
            "config",
            "contextsize",
            "ctx-size",
            "draftmodel",
            "fa",
            "flash-attn",
            "flashattention",
            "gpu-layers",
            "gpulayers",
            "lowvram",
            "m",
            "main-gpu",
            "maingpu",
            "md",
            "mg",
            "mmproj",
            "model",
            "model-draft",
            "moecpu",
            "multiuser",
            "n-cpu-moe",
            "n-gpu-layers",
            "ncmoe",
            "ngl",
            "nkvo",
            "no-kv-offload",
            "password",
            "quantkv",
            "routermode",
            "sdmodel",
            "tensor-split",
            "tensor_split",
            "tensorsplit",
            "ts",
            "useclblast",
            "usecpu",
            "usecublas",
            "usecuda",
            "usehipblas",
            "usevulkan",
            "whispermodel",
        }
    ),
    "llama-swap": frozenset(
        {
            "apiKeys",
            "globalTTL",
            "models.*.ttl",
        }
    ),
    "llama.cpp": frozenset(
        {
            "CUDA_VISIBLE_DEVICES",
            "GGML_CUDA_ENABLE_UNIFIED_MEMORY",
            "LLAMA_API_KEY",
            "LLAMA_ARG_API_KEY_FILE",
            "LLAMA_ARG_CACHE_RAM",
            "LLAMA_ARG_CACHE_TYPE_K",
            "LLAMA_ARG_CACHE_TYPE_V",
            "LLAMA_ARG_CPU_MOE",
            "LLAMA_ARG_CTX_SIZE",
            "LLAMA_ARG_DEVICE",
            "LLAMA_ARG_ENDPOINT_METRICS",
            "LLAMA_ARG_ENDPOINT_SLOTS",
            "LLAMA_ARG_FIT",
            "LLAMA_ARG_FIT_TARGET",
            "LLAMA_ARG_FLASH_ATTN",
            "LLAMA_ARG_KV_OFFLOAD",
            "LLAMA_ARG_LOAD_MODE",
            "LLAMA_ARG_MAIN_GPU",
            "LLAMA_ARG_MLOCK",
            "LLAMA_ARG_MMPROJ",
            "LLAMA_ARG_MMPROJ_OFFLOAD",
            "LLAMA_ARG_MODELS_AUTOLOAD",
            "LLAMA_ARG_MODELS_MAX",
            "LLAMA_ARG_MODELS_PRESET",
            "LLAMA_ARG_MODEL_DRAFT",
            "LLAMA_ARG_NO_ENDPOINT_SLOTS",
            "LLAMA_ARG_NO_KV_OFFLOAD",
            "LLAMA_ARG_NO_MMPROJ_OFFLOAD",
            "LLAMA_ARG_NO_MODELS_AUTOLOAD",
            "LLAMA_ARG_N_CPU_MOE",
            "LLAMA_ARG_N_GPU_LAYERS",
            "LLAMA_ARG_N_PARALLEL",
            "LLAMA_ARG_SPEC_DRAFT_MODEL",
            "LLAMA_ARG_SPLIT_MODE",
            "LLAMA_ARG_TENSOR_SPLIT",
            "api-key",
            "api-key-file",
            "c",
            "cache-ram",
            "cache-type-k",
            "cache-type-v",
            "cmoe",
            "cpu-moe",
            "cram",
            "ctk",
            "ctv",
            "ctx-size",
            "dev",
            "device",
            "fa",
            "fit",
            "fit-target",
            "fitt",
            "flash-attn",
            "gpu-layers",
            "kv-offload",
            "kvo",
            "lm",
            "load-mode",
            "main-gpu",
            "md",
            "metrics",
            "mg",
            "mlock",
            "mm",
            "mmproj",
            "mmproj-offload",
            "model-draft",
            "models-autoload",
            "models-max",
            "models-preset",
            "n-cpu-moe",
            "n-gpu-layers",
            "ncmoe",
            "ngl",
            "nkvo",
            "no-kv-offload",
            "no-mmproj-offload",
            "no-models-autoload",
            "no-op-offload",
            "no-slots",
            "np",
            "op-offload",
            "parallel",
            "sleep-idle-seconds",
            "slots",
            "sm",
            "spec-draft-model",
            "split-mode",
            "tensor-split",
            "ts",
        }
    ),
    "tabbyapi": frozenset(
        {
            "draft_model.draft_model_name",
            "model.autosplit_reserve",
            "model.cache_mode",
            "model.cache_size",
            "model.gpu_split",
            "model.inline_model_loading",
            "model.max_batch_size",
            "model.max_seq_len",
            "model.model_name",
            "model.tensor_parallel",
            "network.disable_auth",
        }
    ),
}
"""By engine."""


def sources_of(command_line: Sequence[str], working_directory: str, places: Mapping[str, str]) -> tuple[Source, ...]:
    """Return the files that an engine's server reads, the one that counts most last; none for other programs.

    places: HOME and the like of its environment.
    """
    programs = {argument.rsplit("/", 1)[-1].lower() for argument in command_line[:3]}
    folder = working_directory.lower()
    if any(name.startswith("llama-server") for name in programs) or {"llama", "serve"} <= programs:
        return _llama_cpp(places)
    if any(name.startswith("llama-swap") for name in programs):
        named = _value(("-config", "--config"), command_line) or "config.yaml"
        return _at("llama-swap", working_directory, named, "yaml")
    if any(name.startswith("koboldcpp") for name in programs):
        return _at("koboldcpp", working_directory, _value(("--config",), command_line), "json")
    if any(name.startswith("invokeai-web") for name in programs):
        root = _value(("--root",), command_line) or places.get("INVOKEAI_ROOT", "") or _beside(places)
        named = _value(("--config",), command_line) or posixpath.join(root, "invokeai.yaml")
        return _at("invokeai", working_directory, named, "yaml")
    if {"main.py", "start.py"} & programs and "tabby" in " ".join((folder, *command_line[:3])).lower():
        script = next((each for each in command_line[:3] if each.endswith((".py",))), "")
        there = posixpath.dirname(posixpath.join(working_directory, script))
        return _at("tabbyapi", there, _value(("--config",), command_line) or "config.yml", "yaml")
    return ()


def _llama_cpp(places: Mapping[str, str]) -> tuple[Source, ...]:
    keys = KEYS["llama.cpp"]
    home = places.get("XDG_CONFIG_HOME", "") or (f"{places['HOME']}/.config" if places.get("HOME") else "")
    paths = ["/etc/llama.cpp/config.ini", *([f"{home}/llama.cpp/config.ini"] if home.startswith("/") else [])]
    return tuple(Source(path, "ini", keys) for path in paths)


def _beside(places: Mapping[str, str]) -> str:
    """InvokeAI's root where none is set: the folder of its virtual environment, else ~/invokeai."""
    if venv := places.get("VIRTUAL_ENV", ""):
        return posixpath.dirname(venv)
    return posixpath.join(places.get("HOME", ""), "invokeai")


def _at(engine: str, folder: str, named: str, form: Literal["yaml", "json"]) -> tuple[Source, ...]:
    path = posixpath.normpath(posixpath.join(folder, named)) if named else ""
    return (Source(path, form, KEYS[engine]),) if path.startswith("/") else ()


def _value(flags: Sequence[str], command_line: Sequence[str]) -> str:
    """The value of the last of these flags; empty when there is none."""
    found = ""
    for index, argument in enumerate(command_line):
        name, equals, value = argument.partition("=")
        if name in flags:
            found = value if equals else "".join(command_line[index + 1 : index + 2])
    return found
