"""The object that takes the place of the loaded libnvidia-ml.so.1."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from gpusupervisor.simulation.nvml.marshalling import Answer, Argument, check, number
from gpusupervisor.simulation.nvml.world import World

SUCCESS = 0
Handler = Callable[..., Argument]

POLL = 0.005
"""Seconds between two looks of a function that waits."""
TIMEOUT = 10
NO_PERMISSION = 4


@dataclass(frozen=True)
class _Symbol:
    handler: Handler
    since: tuple[int, ...]
    root: bool
    patient: bool


_SYMBOLS: dict[str, _Symbol] = {}


def nvml(
    *names: str, since: tuple[int, ...] = (0,), root: bool = False, patient: bool = False
) -> Callable[[Handler], Handler]:
    """Register a handler: handler(library, *arguments).

    since: first driver release that has the symbol. root: it needs privilege. patient: as long as it answers TIMEOUT
    it is tried again, for the milliseconds of its last argument.
    """

    def register(handler: Handler) -> Handler:
        for name in names:
            _SYMBOLS[name] = _Symbol(handler, since, root, patient)
        return handler

    return register


class SimulatedLibrary:
    """One mapped library. As in life it stays of its release when the driver's packages are upgraded."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.version = world.driver
        self.release = tuple(int(part) for part in world.driver.split("."))
        self.slots: list[str] = []
        """UUIDs in the order in which handles were first given."""
        self.event_sets: dict[int, dict[str, int]] = {}
        """Pointer value to the GPUs registered, each with how many of its Xids were told."""
        self.event_sets_made = 0

    def __getattr__(self, name: str) -> Callable[..., Argument]:
        """What pynvml looks up once and caches: a plain function, because pynvml sets attributes on it."""
        symbol = _SYMBOLS.get(name)
        if symbol is None or name in self.world.missing_symbols or self.release < symbol.since:
            raise AttributeError(f"libnvidia-ml.so.1: undefined symbol: {name}")
        return self._function(name, symbol)

    def _function(self, name: str, symbol: _Symbol) -> Callable[..., Argument]:
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
            answer = self._answer(name, symbol, arguments)
            if symbol.patient:
                deadline = time.monotonic() + number(arguments[-1]) / 1000
                while answer == TIMEOUT and time.monotonic() < deadline:
                    time.sleep(POLL)
                    world.refresh()
                    answer = self._answer(name, symbol, arguments)
            return answer

        call.__name__ = name
        return call

    def _answer(self, name: str, symbol: _Symbol, arguments: tuple[object, ...]) -> Argument:
        with self.world.lock:
            code = self.world.failure(name)
            if code is not None:
                return code
            if symbol.root and not self.world.privileged:
                return NO_PERMISSION
            try:
                answer = symbol.handler(self, *arguments)
            except Answer as other:
                return other.code
            return SUCCESS if answer is None else answer
