"""The reader's method about processes."""

from collections.abc import Sequence

from dbus_fast import Variant

from gpusupervisor.bus.objects import Call, Handlers
from gpusupervisor.processes.identity import OwnNetwork, ProcessKey
from gpusupervisor.reader.facts import FactTeller, Told


class FactCalls:
    """Callers have been admitted already."""

    def __init__(self, teller: FactTeller) -> None:
        self._teller = teller

    def handlers(self) -> Handlers:
        """By method."""
        return {"Facts": self._facts}

    async def _facts(self, _call: Call, processes: Sequence[tuple[int, int]]) -> list[object]:
        told = await self._teller.tell([ProcessKey(pid, start_time) for pid, start_time in processes])
        return [[_entry(each) for each in told]]


def _entry(told: Told) -> dict[str, Variant]:
    entry = {"pid": Variant("u", told.key.pid), "start_time": Variant("t", told.key.start_time)}
    if told.facts is None:
        return {**entry, "refused": Variant("s", told.refusal)}
    return {
        **entry,
        "executable": Variant("s", told.facts.executable),
        "working_directory": Variant("s", told.facts.working_directory),
        "listening_ports": Variant("au", list(told.facts.listening_ports)),
        "listens_elsewhere": Variant("b", told.facts.listens_elsewhere),
        "has_opened_gpu": Variant("b", told.facts.has_opened_gpu),
        **_network(told.facts.network),
        "environment": Variant("a{ss}", dict(told.facts.environment)),
        "configuration": Variant(
            "a(sba{ss})", [[file.path, file.readable, dict(file.values)] for file in told.facts.configuration]
        ),
    }


def _network(network: OwnNetwork | None) -> dict[str, Variant]:
    if network is None:
        return {}
    return {
        "network_addresses": Variant("as", list(network.addresses)),
        "network_ports": Variant("au", list(network.ports)),
    }
