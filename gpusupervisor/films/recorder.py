"""Recording of a running service: the tape, with the first line that says what the service was set to."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gpusupervisor.arbitration.learned import Fact
from gpusupervisor.configuration.layers import Sourced, Tree, plain
from gpusupervisor.films.tape import Tape, header_of
from gpusupervisor.settings import Settings
from gpusupervisor.tenants.catalog import SHIPPED, Catalog

UNTOLD = ("headers",)
"""Keys of a definition that may hold secrets."""


class ServiceRecorder:
    """Hands out the lines of the tape."""

    def __init__(
        self,
        tape: Tape,
        settings: Callable[[], Settings],
        catalog: Callable[[], Catalog],
        facts: Callable[[], tuple[Fact, ...]],
    ) -> None:
        self._tape = tape
        self._settings = settings
        self._catalog = catalog
        self._facts = facts

    def record(self, after: int) -> tuple[list[str], int]:
        """See `Recorder`."""
        return self._tape.read(after, self._header)

    def _header(self) -> Mapping[str, object]:
        return header_of(settings_told(self._settings()), tenants_told(self._catalog()), self._facts())


def settings_told(settings: Settings) -> Mapping[str, object]:
    """What decides of the settings, as gpusupervisor.toml has it."""
    return {
        "reserve": str(settings.reserve),
        "reservation": f"{settings.reservation}us",
        "interval": f"{settings.interval}us",
        "idle-interval": f"{settings.idle_interval}us",
    }


def tenants_told(catalog: Catalog) -> Mapping[str, object]:
    """The definitions that are not, or not only, shipped: whole, without what may be secret."""
    return {
        name: _without_secrets(plain(tree))
        for name, tree in catalog.trees.items()
        if any(Path(file).parent != SHIPPED for file in _files(tree))
    }


def _files(tree: Tree) -> Iterator[str]:
    """Where the values of a definition come from."""
    for value in tree.values():
        if isinstance(value, Sourced):
            yield value.file
        else:
            yield from _files(value)


def _without_secrets(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _without_secrets(each) for key, each in value.items() if key not in UNTOLD}
    return [_without_secrets(each) for each in value] if isinstance(value, list) else value
