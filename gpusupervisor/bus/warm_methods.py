"""The methods of engines about models' files in RAM."""

from collections.abc import Callable, Mapping
from functools import partial

from dbus_fast import Variant

from gpusupervisor.bus import names
from gpusupervisor.bus.admission import Admission
from gpusupervisor.bus.job_methods import JobMethods
from gpusupervisor.bus.objects import Call, Handlers
from gpusupervisor.bus.wire import details, unknown_option
from gpusupervisor.errors import InvalidArgument, NoSuchEngine
from gpusupervisor.foreign_text import unknown_name
from gpusupervisor.models.warm_plan import WarmStep
from gpusupervisor.state import State, Warmer

LONGEST_MODEL = 256
"""Characters of a model's name."""


class WarmMethods:
    """Handlers by interface and engine."""

    def __init__(self, warmer: Warmer, admission: Admission, jobs: JobMethods, state: Callable[[], State]) -> None:
        self._warmer = warmer
        self._admission = admission
        self._jobs = jobs
        self._state = state

    def engines(self) -> Handlers:
        """Of the collection of engines."""
        return {"WarmPlan": self._plan, "WarmModel": self._warm_one}

    def engine(self, engine: str) -> Handlers:
        """Of one engine."""
        return {"WarmModel": partial(self._warm, engine)}

    async def _plan(self, _call: Call) -> list[object]:
        return [[_step(step) for step in await self._warmer.plan_warming()]]

    async def _warm_one(self, call: Call, engine: str, model: str) -> list[object]:
        return await self._warm(engine, call, model, {})

    async def _warm(self, engine: str, call: Call, model: str, options: Mapping[str, Variant]) -> list[object]:
        if not model or len(model) > LONGEST_MODEL or not model.isprintable():
            raise InvalidArgument(f"model must be 1 to {LONGEST_MODEL} printable characters")
        rate = _rate(options)
        async with self._admission.authorized(call, names.ACTION_WARM_MODEL, tenant=engine, model=model):
            if engine not in self._state().engines:
                raise NoSuchEngine(unknown_name("engine", engine, self._state().engines))
            work = await self._warmer.warm(engine, model, rate)
            return [await self._jobs.start(call, "warm-up", f"{engine} {model}", work)]


def _rate(options: Mapping[str, Variant]) -> int:
    for name, value in options.items():
        if name != "rate" or value.signature != "t":
            raise unknown_option(name, value, "rate (t)")
    return int(options["rate"].value) if options else 0


def _step(step: WarmStep) -> dict[str, Variant]:
    return details(
        engine=("s", step.engine),
        model=("s", step.model.name),
        size=("t", step.model.size),
        cached=("t", step.model.cached),
        verdict=("s", step.verdict),
        reason=("s", step.reason),
    )
