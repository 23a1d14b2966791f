"""Recognition is decided once for each process, not at every look."""

from collections import OrderedDict
from collections.abc import Mapping

from gpusupervisor.gpu.sample import ProcessKind
from gpusupervisor.processes.identity import ProcessIdentity, ProcessKey
from gpusupervisor.tenants.catalog import Catalog
from gpusupervisor.tenants.matching import Recognition, ancestors_of, match_process

_Facts = tuple[ProcessIdentity, tuple[ProcessIdentity, ...]]


class Recognizer:
    """A bounded memory of recognitions; forgets all of them when it is given another catalog."""

    def __init__(self, capacity: int = 1024) -> None:
        self._capacity = capacity
        self._catalog: Catalog | None = None
        self._known: OrderedDict[tuple[ProcessKey, frozenset[ProcessKind]], tuple[_Facts, Recognition | None]]
        self._known = OrderedDict()

    def recognize(
        self,
        catalog: Catalog,
        identity: ProcessIdentity,
        kinds: frozenset[ProcessKind],
        identities: Mapping[int, ProcessIdentity],
    ) -> Recognition | None:
        """What the process is; decided again when anything that decides it has changed."""
        if catalog is not self._catalog:
            self._known.clear()
            self._catalog = catalog
        # One look asks for a server that holds VRAM twice: as a server of no kind, and as the driver lists it.
        asked = (identity.key, kinds)
        facts = (identity, ancestors_of(identity, identities))
        remembered = self._known.get(asked)
        if remembered is not None and remembered[0] == facts:
            self._known.move_to_end(asked)
            return remembered[1]
        recognition = match_process(identity, kinds, catalog.definitions.values(), facts[1])
        self._known[asked] = (facts, recognition)
        self._known.move_to_end(asked)
        if len(self._known) > self._capacity:
            self._known.popitem(last=False)
        return recognition
