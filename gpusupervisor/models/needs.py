"""What a model needs in VRAM: measured at an earlier load, else reported by its engine, else estimated."""

from collections.abc import Callable

from gpusupervisor.engines.model_apis.listing import Listed

CONTEXT_SHARE = 10
"""Percent of its files' size for its context: weights lie in VRAM as they lie in the files (GGUF and safetensors are
read as they are), and beside them the keys and values of the context: 512 MiB for an 8B model of 4.9 GB with 4096
tokens."""
OVERHEAD = 600 << 20
"""Bytes for what every load costs beside the model: the CUDA context and kernels (300 to 500 MiB) and the buffers
of one computation."""
REMEMBERED = 4096
"""Models whose reported need is kept."""

Learned = Callable[[str, str], int | None]
"""What the last measured load of an engine's model took, in bytes: of the tenant's id and the model's name."""


def nothing_learned(_engine: str, _model: str) -> int | None:
    """Nothing was ever measured."""
    return None


def estimate(size: int) -> int:
    """Bytes of VRAM that a model of so many bytes of files needs, roughly."""
    return size + size * CONTEXT_SHARE // 100 + OVERHEAD


class Needs:
    """Asks for what was measured; remembers what was reported, for as long as the service runs."""

    def __init__(self, learned: Learned = nothing_learned) -> None:
        self._learned = learned
        self._reported: dict[tuple[str, str], int] = {}

    def of(self, engine: str, model: Listed) -> tuple[int | None, str]:
        """Bytes, and where that comes from; (None, "") when nobody knows. Notes what the engine reports now."""
        if model.remote:
            return None, ""
        key = (engine, model.name)
        if model.wants is not None and model.wants > 0:
            _remember(self._reported, key, model.wants)
        measured = self._learned(*key)
        if measured is not None:
            return measured, "measured"
        if key in self._reported:
            return self._reported[key], "reported"
        if model.size:
            return estimate(model.size), "estimated from its size"
        return None, ""


def _remember(book: dict[tuple[str, str], int], key: tuple[str, str], size: int) -> None:
    book.pop(key, None)
    book[key] = size
    if len(book) > REMEMBERED:
        del book[next(iter(book))]
