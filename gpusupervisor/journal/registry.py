"""All kinds of entries, by their ids."""

from collections.abc import Mapping

from gpusupervisor.journal.entry import Entry
from gpusupervisor.journal.messages import engines, hardware, health, plans, service

KINDS: Mapping[str, type[Entry]] = {
    kind.message_id: kind
    for module in (service, plans, health, hardware, engines)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Entry) and kind is not Entry
}
