"""On which cards a tenant's need is to be met. Pure."""

from collections.abc import Iterable, Mapping

from gpusupervisor.arbitration.worthwhile import WORTHWHILE
from gpusupervisor.gpu.sample import GpuSample
from gpusupervisor.processes.identity import ProcessIdentity

VISIBLE = "CUDA_VISIBLE_DEVICES"
_ORDER = "CUDA_DEVICE_ORDER"


def cards_of(
    holdings: Mapping[str, int], free: Mapping[str, int], visible: frozenset[str] | None, *, spreads: bool
) -> tuple[str, ...]:
    """The cards that a tenant uses or could use, the one that its need is about first; empty without any card.

    free: bytes available to it, by every card that can be read. visible: the cards it is restricted to, None when
    nothing is known of that. spreads: whether its engine divides one piece of work among cards.
    """
    allowed = [uuid for uuid in free if visible is None or uuid in visible] or list(free)
    order = sorted(allowed, key=lambda uuid: (holdings.get(uuid, 0), free[uuid], uuid), reverse=True)
    used = [uuid for uuid in free if holdings.get(uuid, 0) >= WORTHWHILE]
    if spreads:
        return tuple(dict.fromkeys([*order, *used]))
    home = max(free, key=lambda uuid: (holdings.get(uuid, 0), uuid in allowed, free[uuid], uuid), default="")
    return (home,) if home else ()


def visible_cards(processes: Iterable[ProcessIdentity], gpus: Iterable[GpuSample]) -> frozenset[str] | None:
    """The cards that a tenant's processes may see; None when nothing restricts them, or it is not certain how.

    An index means something only where the order of the cards is certain: CUDA's own order puts the fastest first.
    """
    known = list(gpus)
    for process in processes:
        variables = dict(process.environment)
        value = variables.get(VISIBLE, "").strip()
        if not value:
            continue
        alike = len({gpu.identity.name.partition(" (GPU-")[0] for gpu in known}) <= 1
        by_index = alike or variables.get(_ORDER) == "PCI_BUS_ID"
        found = _cards(value, known, by_index=by_index)
        if found:
            return frozenset(found)
    return None


def _cards(value: str, gpus: list[GpuSample], *, by_index: bool) -> list[str]:
    """As CUDA reads the list: up to the first entry that names no card. Empty when an entry cannot be told."""
    found: list[str] = []
    for entry in (part.strip() for part in value.split(",")):
        if entry.isascii() and entry.isdigit():
            if not by_index:
                return []
            if int(entry[:4]) >= len(gpus):
                break
            found.append(gpus[int(entry[:4])].identity.uuid)
        elif entry.startswith("GPU-"):
            matching = [gpu.identity.uuid for gpu in gpus if gpu.identity.uuid.startswith(entry)]
            if len(matching) != 1:
                break
            found += matching
        else:
            return []
    return found
