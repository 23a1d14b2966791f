"""Resolves what a person calls a GPU: its index, its name, or the beginning of its UUID."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from gpusupervisor.cli.exits import FAILED, WRONG_USE, CommandFailed
from gpusupervisor.cli.session import Session

_GPU = "org.gpusupervisor1.Gpu"
_LONGEST_INDEX = 3
"""Digits; longer ones begin a UUID."""


class _Known(NamedTuple):
    path: str
    uuid: str
    name: str
    number: int
    """As nvidia-smi prints it: the driver numbers GPUs by PCI address."""

    @property
    def label(self) -> str:
        return f"{self.number} ({self.name}, {self.uuid})"


async def card(session: Session, wanted: str = "") -> tuple[str, str]:
    """Return path and UUID of the GPU that `wanted` names, or of the only one. Raises CommandFailed if ambiguous."""
    return find(await session.client.objects(), wanted)


def find(objects: Mapping[str, Mapping[str, Mapping[str, Any]]], wanted: str = "") -> tuple[str, str]:
    """Return path and UUID of one GPU of `objects`.

    wanted: index as nvidia-smi prints it, a part of the name, the beginning of the UUID with or without "GPU-", or ""
    for the only GPU. Raises CommandFailed unless it names exactly one.
    """
    gpus = _known(objects)
    if not gpus:
        raise CommandFailed("No GPU is known; gpusupervisorctl health says why.", FAILED)
    found = _named(gpus, wanted)
    if len(found) == 1:
        return found[0].path, found[0].uuid
    number = "More than one GPU matches" if found else "No GPU matches"
    problem = f"{number} {wanted!r}" if wanted else "There is more than one GPU"
    listed = ", ".join(gpu.label for gpu in found or gpus)
    raise CommandFailed(f"{problem}; name one by index, name or UUID: {listed}.", WRONG_USE)


def _known(objects: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[_Known]:
    """All GPUs, by index."""
    shown = [(path, interfaces[_GPU]) for path, interfaces in sorted(objects.items()) if _GPU in interfaces]
    shown.sort(key=lambda each: str(each[1].get("PciBusId", "")))
    return [
        _Known(path, str(values["Uuid"]), str(values.get("Name", "")), index)
        for index, (path, values) in enumerate(shown)
    ]


def _named(gpus: list[_Known], wanted: str) -> list[_Known]:
    """The GPUs that the words can mean: an index before a UUID's beginning, and both before a part of the name."""
    if not wanted:
        return gpus
    if wanted.isdecimal() and len(wanted) <= _LONGEST_INDEX:
        by_index = [gpu for gpu in gpus if gpu.number == int(wanted)]
        if by_index:
            return by_index
    by_uuid = [gpu for gpu in gpus if gpu.uuid.lower().startswith((wanted.lower(), f"gpu-{wanted.lower()}"))]
    return by_uuid or [gpu for gpu in gpus if wanted.lower() in gpu.name.lower()]
