"""What a model needs in VRAM: measured at an earlier load, else reported by its engine, else estimated."""

from typing import Protocol

CONTEXT_SHARE = 10
"""Percent of its files' size for its context: weights lie in VRAM as they lie in the files (GGUF and safetensors are
read as they are), and beside them the keys and values of the context: 512 MiB for an 8B model of 4.9 GB with 4096
tokens."""
OVERHEAD = 600 << 20
"""Bytes for what every load costs beside the model: the CUDA context and kernels (300 to 500 MiB) and the buffers
of one computation."""
REMEMBERED = 4096
"""Models whose reported need is kept."""


class Evidence(Protocol):
    """What a need can be told from, beside what the engine says. engine: its tenant's id; model: its name there."""

    def need(self, engine: str, model: str) -> int | None:
        """What the last measured load took, in bytes; None when none was measured."""

    def size(self, engine: str, model: str) -> int | None:
        """Bytes of the model's files, where they were found; None when they were not."""

    def revision(self) -> object:
        """Another value whenever an answer may be another one."""


def estimate(size: int) -> int:
    """Bytes of VRAM that a model of so many bytes of files needs, roughly."""
    return size + size * CONTEXT_SHARE // 100 + OVERHEAD


class Needs:
    """Asks for what was measured; remembers what was reported, for as long as the service runs."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self._reported: dict[tuple[str, str], int] = {}

    def note(self, engine: str, model: str, reported: int | None) -> None:
        """What an engine says of one of its models now; None or 0: nothing."""
        if reported:
            _remember(self._reported, (engine, model), reported)

    def of(self, engine: str, model: str, size: int | None) -> tuple[int | None, str]:
        """Bytes, and where that comes from; (None, "") when nobody knows. size: of its files, as far as is known."""
        measured = self.evidence.need(engine, model)
        if measured is not None:
            return measured, "measured"
        reported = self._reported.get((engine, model))
        if reported is not None:
            return reported, "reported"
        return (estimate(size), "estimated from its size") if size else (None, "")


def _remember(book: dict[tuple[str, str], int], key: tuple[str, str], size: int) -> None:
    book.pop(key, None)
    book[key] = size
    if len(book) > REMEMBERED:
        del book[next(iter(book))]
