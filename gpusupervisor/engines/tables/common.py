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
    return f"it sees only GPU {facts.value} (as CUDA numbers them): memory freed on another GPU does not help it"


CUDA_VISIBLE_DEVICES = Known("CUDA_VISIBLE_DEVICES", _visible, variables=("CUDA_VISIBLE_DEVICES",))


def expands(facts: Facts) -> bool:
    """Whether PyTorch's allocator grows its segments in place."""
    return "expandable_segments:True" in facts.value.replace(" ", "")


def _allocator(facts: Facts) -> str:
    if expands(facts):
        return "PyTorch loses less VRAM to fragmentation"
    return "how PyTorch manages its VRAM: what it keeps for reuse counts as held until it is asked to give it back"


TORCH_ALLOCATOR = Known(
    "PYTORCH_CUDA_ALLOC_CONF", _allocator, variables=("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
)
"""PYTORCH_ALLOC_CONF is the name since PyTorch 2.9, which still reads the older one."""
UNIFIED_MEMORY = Known(
    "GGML_CUDA_ENABLE_UNIFIED_MEMORY",
    "when VRAM runs out it carries on in system memory, slowly, instead of failing: a lack of VRAM is never reported",
    variables=("GGML_CUDA_ENABLE_UNIFIED_MEMORY",),
)
TORCH = (CUDA_VISIBLE_DEVICES, TORCH_ALLOCATOR)
GGML = (CUDA_VISIBLE_DEVICES, UNIFIED_MEMORY)
PROTECTED_API = "its API wants a key: without that key in the tenant file, much of it cannot be asked"


def switched(on: str, off: str = "") -> Callable[[Facts], str]:
    """The meanings of a switch, by its value."""
    return lambda facts: on if is_on(facts.value) else off
