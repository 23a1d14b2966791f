"""Which GPU is meant."""

from collections.abc import Mapping
from typing import Any

from gpusupervisor.cli.exits import FAILED, WRONG_USE, CommandFailed
from gpusupervisor.cli.session import Session

_GPU = "org.gpusupervisor1.Gpu"


async def card(session: Session, wanted: str = "") -> tuple[str, str]:
    """Path and UUID of the GPU whose UUID begins so, or of the only one. Raises CommandFailed unless it is just one."""
    return find(await session.client.objects(), wanted)


def find(objects: Mapping[str, Mapping[str, Mapping[str, Any]]], wanted: str = "") -> tuple[str, str]:
    """The same among objects that are known already. "GPU-" may be left out, as `top` does."""
    gpus = {path: str(interfaces[_GPU]["Uuid"]) for path, interfaces in sorted(objects.items()) if _GPU in interfaces}
    found = [(path, uuid) for path, uuid in gpus.items() if uuid.startswith((wanted, f"GPU-{wanted}"))]
    if len(found) == 1:
        return found[0]
    if not gpus:
        raise CommandFailed("No GPU is known; gpusupervisorctl health says why.", FAILED)
    number = "More than one GPU has" if found else "No GPU has"
    problem = f"{number} a UUID that begins with {wanted!r}" if wanted else "There is more than one GPU"
    raise CommandFailed(f"{problem}; name it by how its UUID begins: {', '.join(gpus.values())}.", WRONG_USE)
