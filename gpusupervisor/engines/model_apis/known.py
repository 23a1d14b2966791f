"""Which adapter is which engine's."""

from collections.abc import Mapping

from gpusupervisor.engines.model_apis.api import ModelApi
from gpusupervisor.engines.model_apis.images import Automatic1111Models, ComfyUiModels, InvokeAiModels
from gpusupervisor.engines.model_apis.lemonade import LemonadeModels
from gpusupervisor.engines.model_apis.listing import ABILITIES, Ability, Listing
from gpusupervisor.engines.model_apis.llama_cpp import LlamaCppModels
from gpusupervisor.engines.model_apis.llama_swap import LlamaSwapModels
from gpusupervisor.engines.model_apis.lm_studio import LmStudioModels
from gpusupervisor.engines.model_apis.ollama import OllamaModels
from gpusupervisor.engines.model_apis.servers import LocalAiModels, SglangModels, VllmModels
from gpusupervisor.engines.model_apis.speech import SpeachesModels, UnlistedModels
from gpusupervisor.engines.model_apis.text import KoboldCppModels, TabbyApiModels, TextGenerationWebuiModels

MODEL_APIS: Mapping[str, ModelApi] = {
    "ollama": OllamaModels(),
    "comfyui": ComfyUiModels(),
    "llama.cpp": LlamaCppModels(),
    "llama-swap": LlamaSwapModels(),
    "vllm": VllmModels(),
    "sglang": SglangModels(),
    "localai": LocalAiModels(),
    "lm-studio": LmStudioModels(),
    "automatic1111": Automatic1111Models(),
    "invokeai": InvokeAiModels(),
    "tabbyapi": TabbyApiModels(),
    "koboldcpp": KoboldCppModels(),
    "text-generation-webui": TextGenerationWebuiModels(),
    "speaches": SpeachesModels(),
    "lemonade": LemonadeModels(),
    "whisper.cpp": UnlistedModels(
        "whisper-server names and unloads no model, and its /load ends it when a file does not load"
    ),
}
"""By the `engine` of a tenant's definition."""
_UNKNOWN = UnlistedModels("how this engine is asked for its models is not known")


def model_api(engine: str) -> ModelApi:
    """The adapter of an engine; for one that nobody knows, an adapter that can do nothing."""
    return MODEL_APIS.get(engine, _UNKNOWN)


def shortcomings(api: ModelApi, listing: Listing) -> dict[Ability, str]:
    """What an instance of an engine cannot do, with the reasons."""
    return {**api.cannot, **listing.cannot}


def capabilities(api: ModelApi, listing: Listing) -> tuple[Ability, ...]:
    """What an instance of an engine can do."""
    return tuple(ability for ability in ABILITIES if ability not in shortcomings(api, listing))
