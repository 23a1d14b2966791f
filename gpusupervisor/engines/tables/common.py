"""What several engines have in common."""

from collections.abc import Callable

from gpusupervisor.engines.table import Facts, Known
from gpusupervisor.engines.values import is_on
from gpusupervisor.tenants.release.versions import at_least


def since(minimum: str, value: str, facts: Facts) -> str | None:
    """A default that is documented from this version on."""
    return value if at_least(facts.version, minimum) else None


def _visible(facts: Facts) -> str:
    if facts.value.strip() in ("", "-1", "NoDevFiles"):
        return "it sees no GPU: it holds no VRAM and works on the CPU"
    return f"it sees only GPU {facts.value}, numbered as CUDA counts: memory freed on another one does not help it"


CUDA_VISIBLE_DEVICES = Known("CUDA_VISIBLE_DEVICES", _visible, variables=("CUDA_VISIBLE_DEVICES",))


def _allocator(facts: Facts) -> str:
    if "expandable_segments:True" in facts.value.replace(" ", ""):
        return "PyTorch grows its memory in place: less is lost to fragments; vLLM cannot sleep with it"
    return "how PyTorch keeps memory for reuse: what it has reserved counts as held until it is asked to give it back"


TORCH_ALLOCATOR = Known(
    "PYTORCH_CUDA_ALLOC_CONF", _allocator, variables=("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
)
UNIFIED_MEMORY = Known(
    "GGML_CUDA_ENABLE_UNIFIED_MEMORY",
    "when VRAM runs out it goes on in system memory, slowly, instead of failing: a lack of VRAM is not reported as one",
    variables=("GGML_CUDA_ENABLE_UNIFIED_MEMORY",),
)
TORCH = (CUDA_VISIBLE_DEVICES, TORCH_ALLOCATOR)
GGML = (CUDA_VISIBLE_DEVICES, UNIFIED_MEMORY)
PROTECTED_API = (
    "its API wants a key that the supervisor does not have: add it to the tenant's requests, or it is not asked"
)


def switched(on: str, off: str = "") -> Callable[[Facts], str]:
    """The meanings of a switch, by its value."""
    return lambda facts: on if is_on(facts.value) else off
