"""Sweeps put together: what is tried, on which GPU, with which load, and who is kept off meanwhile."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from gpusupervisor.autotune.admission import points_of
from gpusupervisor.autotune.curve import Tuning
from gpusupervisor.autotune.load import Place, load_for
from gpusupervisor.autotune.points import profile_document
from gpusupervisor.autotune.run import Autotune, Rules
from gpusupervisor.clock import Clock
from gpusupervisor.controls import GpuControls, TuningWish
from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.jobs import Report, Work
from gpusupervisor.peers.autotune_hardware import TunedGpu
from gpusupervisor.peers.hardware_client import HardwareClient
from gpusupervisor.state import EngineStatus

HELD = "an autotune of this GPU is running: cancel its job, or wait until it has ended"
Using = Callable[[], AbstractContextManager[None]]


class Autotuner:
    """Makes the work of jobs; raises SupervisorErrors."""

    def __init__(self, hardware: HardwareClient, http: EngineHttp, clock: Clock, rules: Rules) -> None:
        """rules: their tolerance is a wish's own."""
        self._hardware = hardware
        self._http = http
        self._clock = clock
        self._rules = rules

    def work(self, gpu: str, wish: TuningWish, engine: EngineStatus, using: Using) -> Work:
        """A sweep that can be made now. using: keeps the engine's memory from being asked for.

        Raises Busy, GpuUnavailable, NotSupported, InvalidArgument.
        """
        self._hardware.require_free(gpu)
        controls = self._hardware.controls
        points = points_of(controls, gpu, wish)
        load = load_for(
            engine.engine, self._http, self._clock, Place(engine.endpoint, engine.peer), wish.model, wish.tokens
        )
        rules = replace(self._rules, tolerance=wish.tolerance)

        async def sweep(report: Report) -> object:
            with self._hardware.hold(gpu, HELD), using():
                card = TunedGpu(self._hardware, gpu)
                tuning = await Autotune(card, card, load, self._clock, rules).run(points, report)
            return _with_profile(tuning, controls.gpus[gpu])

        return sweep


def _with_profile(tuning: Tuning, known: GpuControls) -> Tuning:
    """A confirmed profile takes the place of the stored one, so what that one says is in it unless distrusted."""
    if tuning.proposal is None:
        return tuning
    stored = "" if known.distrust else known.profile
    return replace(tuning, profile=profile_document(tuning.proposal.point, stored))
