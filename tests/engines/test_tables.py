"""What each engine's settings mean, by their values."""

from collections.abc import Mapping

import pytest

from gpusupervisor.engines.tables import TABLES
from gpusupervisor.engines.variables import VARIABLES
from tests.engines.builders import api, hidden_process, process, settings

ENGINES = {
    "ollama", "comfyui", "llama.cpp", "llama-swap", "vllm", "sglang", "localai", "lm-studio", "automatic1111",
    "invokeai", "tabbyapi", "koboldcpp", "text-generation-webui", "speaches", "whisper.cpp",
    "lemonade",
}  # fmt: skip


def test_all_engines_have_a_table() -> None:
    assert set(TABLES) == ENGINES


def test_the_variables_that_may_be_read_are_those_of_the_tables() -> None:
    assert frozenset().union(*(table.variables() for table in TABLES.values())) == VARIABLES


def test_a_table_says_what_it_was_checked_against_where_that_is_recorded() -> None:
    assert {engine for engine, table in TABLES.items() if not table.checked_against} == {"ollama", "lm-studio"}


def test_an_unambiguous_beginning_of_sglangs_flags_is_enough() -> None:
    assert settings("sglang", process("python -m sglang.launch_server --tp 2"))["--tp-size"].value == "2"


@pytest.mark.parametrize("engine", sorted(TABLES))
def test_a_table_names_each_setting_flag_and_path_once(engine: str) -> None:
    table = TABLES[engine]
    names = [known.name for known in table.settings]
    flags = [flag for known in table.settings for flag in (*known.flags, *known.unset_by)]
    assert len(names) == len(set(names))
    assert len(flags) == len(set(flags))
    assert all(call.path.startswith("/") and "?" not in call.path for call in table.calls)
    assert {name for call in table.calls for name, _ in call.tells} <= set(names)


@pytest.mark.parametrize(
    ("variable", "value", "meaning"),
    [
        ("OLLAMA_NUM_PARALLEL", "1", "an unload waits behind a generation that is running"),
        ("OLLAMA_NUM_PARALLEL", "4", "VRAM for 4 contexts"),
        ("OLLAMA_NUM_PARALLEL", "0", "Ollama before 0.12 chooses"),
        ("OLLAMA_NUM_PARALLEL", "-1", "cannot read this value and goes by its default"),
        ("OLLAMA_MAX_LOADED_MODELS", "1", "every change of model evicts"),
        ("OLLAMA_MAX_LOADED_MODELS", "0", "three models for each GPU"),
        ("OLLAMA_MAX_LOADED_MODELS", "2", "up to 2 models"),
        ("OLLAMA_KEEP_ALIVE", "-1", "count as pinned"),
        ("OLLAMA_KEEP_ALIVE", "-5m", "count as pinned"),
        ("OLLAMA_KEEP_ALIVE", "0", "unloaded as soon as a request ends"),
        ("OLLAMA_KEEP_ALIVE", "3600", "stays loaded for 1h"),
        ("OLLAMA_KEEP_ALIVE", "24h", "stays loaded for 1d"),
        ("OLLAMA_KEEP_ALIVE", "for ever", "cannot read this value"),
        ("OLLAMA_FLASH_ATTENTION", "1", "has an effect"),
        ("OLLAMA_FLASH_ATTENTION", "false", "has no effect"),
        ("OLLAMA_KV_CACHE_TYPE", "q8_0", "only with flash attention, which is left to Ollama here"),
        ("OLLAMA_KV_CACHE_TYPE", "q5_1", "held as q5_1"),
        ("OLLAMA_KV_CACHE_TYPE", "f16", "full precision"),
        ("OLLAMA_GPU_OVERHEAD", "1073741824", "1.0 GiB of each GPU"),
        ("OLLAMA_SCHED_SPREAD", "true", "spread over all GPUs"),
        ("OLLAMA_SCHED_SPREAD", "0", "placed on one"),
        ("OLLAMA_CONTEXT_LENGTH", "32768", "32768 tokens"),
        ("OLLAMA_HOST", "0.0.0.0", "is asked here"),
        ("OLLAMA_HOST", "[::]:11435", "is asked here"),
        ("OLLAMA_HOST", ":11435", "is asked here"),
        ("OLLAMA_HOST", "192.168.1.5:11434", "only listens at 192.168.1.5"),
        ("OLLAMA_HOST", "http://[::1", "is asked here"),
        ("OLLAMA_LOAD_TIMEOUT", "0", "never given up"),
        ("OLLAMA_LOAD_TIMEOUT", "5m", "given up after 5min"),
        ("OLLAMA_LLM_LIBRARY", "cpu_avx2", "hold no VRAM"),
        ("OLLAMA_LLM_LIBRARY", "cuda_v13", "run with cuda_v13"),
        ("LLAMA_ARG_FIT_TARGET", "2048", "MiB of each GPU are left free"),
        ("CUDA_VISIBLE_DEVICES", "", "sees no GPU"),
        ("CUDA_VISIBLE_DEVICES", "1", "only GPU 1"),
    ],
)
def test_what_ollamas_settings_mean(variable: str, value: str, meaning: str) -> None:
    found = settings("ollama", process(**{variable: value}))
    assert (found[variable].value, found[variable].source) == (value, "environment")
    assert meaning in found[variable].meaning


@pytest.mark.parametrize(
    ("flash", "meaning"),
    [("1", "take half of the VRAM that they would"), ("0", "no effect: it needs flash attention")],
)
def test_a_cache_type_without_flash_attention_has_no_effect(flash: str, meaning: str) -> None:
    found = settings("ollama", process(OLLAMA_KV_CACHE_TYPE="q8_0", OLLAMA_FLASH_ATTENTION=flash))
    assert meaning in found["OLLAMA_KV_CACHE_TYPE"].meaning


@pytest.mark.parametrize(("version", "meaning"), [("0.11.0", "Ollama before 0.12 chooses"), ("0.12.0", "one request")])
def test_no_parallel_requests_are_one_for_later_versions_of_ollama(version: str, meaning: str) -> None:
    found = settings("ollama", process(OLLAMA_NUM_PARALLEL="0"), None, api(version))
    assert found["OLLAMA_NUM_PARALLEL"].meaning.startswith(meaning)


def test_later_versions_of_ollama_load_nothing_with_a_quantized_cache_and_no_flash_attention() -> None:
    running = process(OLLAMA_KV_CACHE_TYPE="q8_0", OLLAMA_FLASH_ATTENTION="0")
    found = settings("ollama", running, None, api("0.30.0"))
    assert "models cannot be loaded" in found["OLLAMA_KV_CACHE_TYPE"].meaning


def test_an_empty_variable_is_none_to_ollama() -> None:
    assert settings("ollama", process(OLLAMA_KEEP_ALIVE="", OLLAMA_HOST='""')) == {}


@pytest.mark.parametrize(
    ("engine", "line", "name", "meaning"),
    [
        ("comfyui", "--highvram", "--highvram", "holds all of them when it is idle"),
        ("comfyui", "--lowvram", "--lowvram", "need less VRAM"),
        ("comfyui", "--vram-headroom 2", "--vram-headroom", "keep 2 GB of the card free"),
        ("comfyui", "--disable-dynamic-vram", "--disable-dynamic-vram", "do not make room"),
        ("comfyui", "--cuda-device all", "--cuda-device", "every GPU"),
        ("comfyui", "--novram", "--novram", "holds little VRAM"),
        ("comfyui", "--normalvram", "--normalvram", "in and out of VRAM as needed"),
        ("comfyui", "--reserve-vram 1.5", "--reserve-vram", "leaves 1.5 GB"),
        ("comfyui", "--cuda-device 1", "--cuda-device", "uses GPU 1 alone"),
        ("comfyui", "--disable-smart-memory", "--disable-smart-memory", "holds little when it is idle"),
        ("llama.cpp", "--sleep-idle-seconds 300", "--sleep-idle-seconds", "after 5min without a request"),
        ("llama.cpp", "--sleep-idle-seconds -1", "--sleep-idle-seconds", "never sleeps"),
        ("llama.cpp", "-ngl 0", "--n-gpu-layers", "stays on the CPU"),
        ("llama.cpp", "-ngl 99", "--n-gpu-layers", "whole model goes into VRAM"),
        ("llama.cpp", "-ngl auto", "--n-gpu-layers", "as many layers as fit"),
        ("llama.cpp", "-ngl -1", "--n-gpu-layers", "as many layers as fit"),
        ("llama.cpp", "-ngl all", "--n-gpu-layers", "whole model"),
        ("llama.cpp", "-fa auto", "--flash-attn", "where the model and the GPU can"),
        ("llama.cpp", "-fitt 512", "--fit-target", "MiB of each GPU"),
        ("llama.cpp", "--spec-draft-model /m.gguf", "--model-draft", "second, smaller model"),
        ("llama.cpp", "-lm mmap+mlock", "--load-mode", "locked in system memory"),
        ("llama.cpp", "-ngl 20", "--n-gpu-layers", "20 of the model's layers are in VRAM"),
        ("llama.cpp", "-c 0", "--ctx-size", "as the model allows"),
        ("llama.cpp", "-c 8192", "--ctx-size", "8192 tokens"),
        ("llama.cpp", "-np 1", "--parallel", "one request at a time"),
        ("llama.cpp", "-np 4", "--parallel", "4 requests"),
        ("llama.cpp", "--no-slots", "--no-slots", "never known to be idle"),
        ("llama.cpp", "--models-max 1", "--models-max", "evicts"),
        ("llama.cpp", "--fit off", "--fit", "fails to start when it does not fit"),
        ("vllm", "--gpu-memory-utilization 0.5", "--gpu-memory-utilization", "takes 50% of the card"),
        ("vllm", "--enable-sleep-mode", "--enable-sleep-mode", "without VLLM_SERVER_DEV_MODE=1"),
        ("sglang", "--mem-fraction-static 0.8", "--mem-fraction-static", "80% of the card"),
        ("sglang", "--enable-memory-saver", "--enable-memory-saver", "without --enable-weights-cpu-backup the model"),
        ("vllm", "--device-ids 1", "--device-ids", "these GPUs alone"),
        ("llama-swap", "--config /etc/swap.yaml", "--config", "their ttl"),
        ("llama-swap", "-config-dir /etc/swap.d", "--config-dir", "their ttl"),
        ("localai", "--max-active-backends 1", "--max-active-backends", "evicts"),
        ("localai", "--watchdog-idle-timeout 15m", "--watchdog-idle-timeout", "after 15min"),
        ("automatic1111", "--medvram", "--medvram", "one at a time"),
        ("automatic1111", "--use-cpu all", "--use-cpu", "holds no VRAM"),
        ("automatic1111", "--use-cpu interrogate", "--use-cpu", "interrogate"),
        ("comfyui", "--cuda-device 0,1", "--cuda-device", "GPUs 0,1 alone"),
        ("comfyui", "--disable-nvml-pressure", "--disable-nvml-pressure", "seen late or never"),
        ("comfyui", "--cache-ram 4 8", "--cache-ram", "system memory"),
        ("comfyui", "--base-directory /srv/c", "--base-directory", "models/"),
        ("koboldcpp", "--gpulayers -1", "--gpulayers", "as many layers as fit"),
        ("koboldcpp", "--quantkv 1", "--quantkv", "as q8, half"),
        ("koboldcpp", "--usecuda normal 1 mmq", "--usecuda", "GPU 1 alone"),
        ("koboldcpp", "--usecublas lowvram", "--usecuda", "contexts stay in system memory"),
        ("text-generation-webui", "--idle-timeout 10", "--idle-timeout", "after 10min"),
        ("tabbyapi", "--cache-size 16384", "--cache-size", "16384 tokens"),
        ("tabbyapi", "--disable-auth False", "--disable-auth", "wants a key"),
        ("text-generation-webui", "--ctx-size 0", "--ctx-size", "as large as fits"),
        ("whisper.cpp", "-ng", "--no-gpu", "holds no VRAM"),
        ("whisper.cpp", "-nfa", "--no-flash-attn", "more VRAM"),
    ],
)
def test_what_flags_mean(engine: str, line: str, name: str, meaning: str) -> None:
    told = settings(engine, process(f"/usr/bin/engine {line}"))
    assert told.keys() - {"VRAM mode"} == {name}
    found = told[name]
    assert found.source == "command line"
    assert meaning in found.meaning


@pytest.mark.parametrize(
    ("engine", "variables", "name", "meaning"),
    [
        ("llama.cpp", {"LLAMA_ARG_N_GPU_LAYERS": "0"}, "--n-gpu-layers", "stays on the CPU"),
        ("whisper.cpp", {"WHISPER_ARG_DEVICE": "1"}, "--device", "the GPU"),
        ("tabbyapi", {"TABBY_MODEL_CACHE_SIZE": "8192"}, "--cache-size", "8192 tokens"),
        ("localai", {"GPU_RECLAIMER": "true"}, "--enable-memory-reclaimer", "fills up"),
        ("llama.cpp", {"LLAMA_ARG_ENDPOINT_SLOTS": "0"}, "--no-slots", "never known to be idle"),
        ("llama.cpp", {"LLAMA_ARG_KV_OFFLOAD": "off"}, "--no-kv-offload", "system memory"),
        ("llama.cpp", {"LLAMA_ARG_MODELS_AUTOLOAD": "false"}, "--no-models-autoload", "refused"),
        ("llama.cpp", {"LLAMA_ARG_KV_OFFLOAD": "on", "LLAMA_ARG_NO_KV_OFFLOAD": "0"}, "--no-kv-offload", "system"),
        ("llama.cpp", {"LLAMA_ARG_NO_ENDPOINT_SLOTS": "1"}, "--no-slots", "never known to be idle"),
        ("llama.cpp", {"LLAMA_API_KEY": "(set)"}, "--api-key", "wants a key"),
        ("speaches", {"STT_MODEL_TTL": "-1"}, "STT_MODEL_TTL", "stay loaded until"),
        ("speaches", {"STT_MODEL_TTL": "0"}, "STT_MODEL_TTL", "as soon as a request ends"),
        ("speaches", {"WHISPER__TTL": "300"}, "STT_MODEL_TTL", "after 5min"),
        ("invokeai", {"INVOKEAI_MAX_CACHE_VRAM_GB": "8"}, "max_cache_vram_gb", "8 GB of VRAM"),
        ("invokeai", {"INVOKEAI_MODEL_CACHE_KEEP_ALIVE_MIN": "5"}, "model_cache_keep_alive_min", "after 5min"),
        ("localai", {"SINGLE_ACTIVE_BACKEND": "true"}, "--single-active-backend", "evicts"),
        ("automatic1111", {"COMMANDLINE_ARGS": "--lowvram"}, "--lowvram", "piece by piece"),
        ("vllm", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, "PYTORCH_CUDA_ALLOC_CONF", "cannot sleep"),
    ],
)
def test_what_variables_mean(engine: str, variables: Mapping[str, str], name: str, meaning: str) -> None:
    (found,) = settings(engine, process(**variables)).values()
    assert (found.name, found.source) == (name, "environment")
    assert meaning in found.meaning


def test_vllm_sleeps_only_with_both_switches() -> None:
    both = settings("vllm", process("vllm serve m --enable-sleep-mode", VLLM_SERVER_DEV_MODE="1"))
    assert "can be asked to sleep" in both["--enable-sleep-mode"].meaning
    assert "everyone who can reach its port" in both["VLLM_SERVER_DEV_MODE"].meaning
    alone = settings("vllm", process("vllm serve m", VLLM_SERVER_DEV_MODE="1"), None, api("0.11.0"))
    assert "without --enable-sleep-mode, /sleep stops its work" in alone["VLLM_SERVER_DEV_MODE"].meaning
    assert (alone["--enable-sleep-mode"].value, alone["--enable-sleep-mode"].source) == ("false", "default")
    assert "no sleep mode" in alone["--enable-sleep-mode"].meaning


def test_defaults_are_told_of_versions_that_document_them_and_of_no_others() -> None:
    assert settings("ollama", process()) == {}
    assert set(settings("ollama", process(), None, api("0.33.0-rc2"))) == {
        "OLLAMA_NUM_PARALLEL",
        "OLLAMA_MAX_LOADED_MODELS",
        "OLLAMA_KEEP_ALIVE",
    }
    assert set(settings("ollama", process(), None, api("0.5.0"))) == {"OLLAMA_MAX_LOADED_MODELS", "OLLAMA_KEEP_ALIVE"}
    assert settings("ollama", hidden_process(), None, api("0.33.0")) == {}, "what is hidden is not the default"
    shares = {
        version: settings("vllm", process("vllm serve m"), None, api(version)).get("--gpu-memory-utilization")
        for version in ("0.11.0", "0.20.0", "0.33.0")
    }
    assert {version: share and (share.value, share.source) for version, share in shares.items()} == {
        "0.11.0": ("0.9", "default"), "0.20.0": None, "0.33.0": ("0.92", "default"),
    }  # fmt: skip


def test_arguments_from_a1111s_variable_come_after_those_of_its_command_line() -> None:
    running = process("python launch.py --device-id 0 --medvram", COMMANDLINE_ARGS="--device-id 1")
    found = settings("automatic1111", running)
    assert (found["--device-id"].value, found["--device-id"].source) == ("1", "environment")
    assert found["--medvram"].source == "command line"


def test_what_an_engine_does_not_know_is_no_setting() -> None:
    assert settings("llama.cpp", process("llama-server", LLAMA_ARG_SLEEP_IDLE_SECONDS="5")) == {}


@pytest.mark.parametrize(
    ("line", "version", "mode"),
    [
        ("", "0.38.0", "dynamic"),
        ("", "0.3.60", "normal"),
        ("", "", ""),
        ("--disable-dynamic-vram", "0.38.0", "normal"),
        ("--enable-dynamic-vram --disable-dynamic-vram", "0.38.0", "dynamic"),
        ("--disable-dynamic-vram --enable-dynamic-vram", "", "dynamic"),
        ("--lowvram", "0.38.0", "dynamic"),
        ("--lowvram --disable-dynamic-vram", "0.38.0", "low"),
        ("--highvram", "0.38.0", "high"),
        ("--cpu", "", "cpu"),
    ],
)
def test_comfyuis_vram_mode_in_effect(line: str, version: str, mode: str) -> None:
    found = settings("comfyui", process(f"/usr/bin/engine {line}"), None, api(version)).get("VRAM mode")
    assert (found.value if found else "") == mode
    assert found is None or found.meaning


def test_llama_cpps_positive_variables_that_are_on_set_nothing() -> None:
    assert settings("llama.cpp", process(LLAMA_ARG_ENDPOINT_SLOTS="1", LLAMA_ARG_KV_OFFLOAD="true")) == {}
