"""What an adapter is."""

from collections.abc import Mapping
from typing import Protocol

from gpusupervisor.engines.model_apis.door import Door
from gpusupervisor.engines.model_apis.listing import Ability, Listing, Reply


class ModelApi(Protocol):
    """The models of one kind of engine. Stateless; what an engine does wrong is a value, never an exception."""

    cannot: Mapping[Ability, str]
    """What this kind of engine never can, with the reason for a person. What is not here its instances can, unless
    their listing says otherwise."""
    replaces: bool
    """A load takes the place of what is loaded, whatever that does."""
    evicts: bool
    """It unloads its own idle models by itself when a load needs their room."""

    async def look(self, door: Door) -> Listing:
        """What it says of its models. Passive: nothing is loaded, woken or started."""

    async def load(self, door: Door, model: str) -> Reply:
        """Have it load a model, or wake one that is asleep. Only called when it can."""

    async def unload(self, door: Door, model: str) -> Reply:
        """Have it unload a model. Only called when it can, and is idle."""


class NeverByName:
    """Of engines that load and unload no model by name; `cannot` says why."""

    cannot: Mapping[Ability, str]

    async def load(self, door: Door, model: str) -> Reply:
        """See `ModelApi`."""
        return Reply("refused", self.cannot["load"])

    async def unload(self, door: Door, model: str) -> Reply:
        """See `ModelApi`."""
        return Reply("refused", self.cannot["unload"])
