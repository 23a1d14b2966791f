"""The settings of every engine that is known, by the engine's name."""

from collections.abc import Mapping
from types import MappingProxyType

from gpusupervisor.engines.table import Table
from gpusupervisor.engines.tables import (
    automatic1111,
    comfyui,
    invokeai,
    koboldcpp,
    lemonade,
    llama_cpp,
    llama_swap,
    lm_studio,
    localai,
    ollama,
    sglang,
    speaches,
    tabbyapi,
    text_generation_webui,
    vllm,
    whisper_cpp,
)

_MODULES = (
    automatic1111,
    comfyui,
    invokeai,
    koboldcpp,
    lemonade,
    llama_cpp,
    llama_swap,
    lm_studio,
    localai,
    ollama,
    sglang,
    speaches,
    tabbyapi,
    text_generation_webui,
    vllm,
    whisper_cpp,
)

TABLES: Mapping[str, Table] = MappingProxyType({module.TABLE.engine: module.TABLE for module in _MODULES})
"""By the engine's name in tenant definitions."""
