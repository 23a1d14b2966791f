"""The object that takes the place of the loaded libnvidia-ml.so.1."""

import threading
import time
from collections.abc import Callable

from gpusupervisor.simulation.nvml.marshalling import Answer, Argument, check
from gpusupervisor.simulation.nvml.world import World

SUCCESS = 0
Handler = Callable[..., Argument]

_HANDLERS: dict[str, tuple[Handler, tuple[int, ...]]] = {}


def nvml(*names: str, since: tuple[int, ...] = (0,)) -> Callable[[Handler], Handler]:
    """Register a handler: handler(library, *arguments). since: first driver release that has the symbol."""

    def register(handler: Handler) -> Handler:
        for name in names:
            _HANDLERS[name] = (handler, since)
        return handler

    return register


class SimulatedLibrary:
    """One mapped library. As in life it stays of its release when the driver's packages are upgraded."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.version = world.driver
        self.slots: list[str] = []
        """UUIDs in the order in which handles were first given."""

    def __getattr__(self, name: str) -> Callable[..., Argument]:
        """What pynvml looks up once and caches: a plain function, because pynvml sets attributes on it."""
        handler, since = _HANDLERS.get(name, (None, ()))
        release = tuple(int(part) for part in self.version.split("."))
        if handler is None or name in self.world.missing_symbols or release < since:
            raise AttributeError(f"libnvidia-ml.so.1: undefined symbol: {name}")
        return self._function(name, handler)

    def _function(self, name: str, handler: Handler) -> Callable[..., Argument]:
        world = self.world

        def call(*arguments: object) -> Argument:
            check(name, arguments)
            world.refresh()
            world.calls.append(name)
            world.threads.add(threading.get_ident())
            if world.latency:
                time.sleep(world.latency.get(name, world.latency.get("*", 0.0)))
            if world.hanging:
                world.wait_while_hanging(name)
            with world.lock:
                code = world.failure(name)
                if code is not None:
                    return code
                try:
                    answer = handler(self, *arguments)
                except Answer as other:
                    return other.code
                return SUCCESS if answer is None else answer

        call.__name__ = name
        return call
