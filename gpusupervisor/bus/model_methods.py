"""The methods that load and unload models."""

from collections.abc import Callable, Mapping
from functools import partial

from dbus_fast import Variant

from gpusupervisor.bus import names
from gpusupervisor.bus.admission import Admission
from gpusupervisor.bus.job_methods import JobMethods
from gpusupervisor.bus.model_views import model_list, unload_details
from gpusupervisor.bus.objects import Call, Handlers
from gpusupervisor.bus.wire import text, unknown_option
from gpusupervisor.clock import UNKNOWN
from gpusupervisor.errors import Busy, InvalidArgument, NoSuchEngine
from gpusupervisor.foreign_text import unknown_name
from gpusupervisor.jobs import Job
from gpusupervisor.models.model import find_model
from gpusupervisor.state import Controller, State

LOAD = "load-model"
"""The kind of the job."""
NAME_LIMIT = 512
"""Characters of a model's name, which may be a path."""


class ModelMethods:
    """Handlers of the engines' collection and of each engine."""

    def __init__(
        self, controller: Controller, admission: Admission, jobs: JobMethods, state: Callable[[], State]
    ) -> None:
        self._controller = controller
        self._admission = admission
        self._jobs = jobs
        self._state = state

    def engines(self) -> Handlers:
        """Of the collection of engines."""
        return {"Models": self._models, "LoadModel": self._load_by_name, "UnloadModel": self._unload_by_name}

    def engine(self, engine: str) -> Handlers:
        """Of one engine."""
        return {"LoadModel": partial(self._load, engine), "UnloadModel": partial(self._unload, engine)}

    async def _models(self, _call: Call, engine: str) -> list[object]:
        status = self._state().engines.get(engine)
        if status is None:
            raise NoSuchEngine(unknown_name("engine", engine, self._state().engines))
        return [model_list(status)]

    async def _load_by_name(self, call: Call, engine: str, model: str) -> list[object]:
        _check_name("engine", engine)
        return await self._load(engine, call, model, {})

    async def _unload_by_name(self, call: Call, engine: str, model: str) -> list[object]:
        _check_name("engine", engine)
        return await self._unload(engine, call, model)

    async def _load(self, engine: str, call: Call, model: str, options: Mapping[str, Variant]) -> list[object]:
        _check_name("model", model)
        needs = _needs(options)
        async with self._admission.authorized(call, names.ACTION_LOAD_MODEL, tenant=engine, model=model):
            owner = await self._jobs.owner(call)
            # Nothing is awaited from here on: of two calls at the same time the second one finds the first one's job.
            target = f"{engine} {self._full_name(engine, model)}"
            if (running := self._running_load(engine)) is not None:
                if running.target == target:
                    return [names.job_path(running.id)]
                raise Busy(
                    f"{engine} is loading {text(running.target.removeprefix(f'{engine} '), NAME_LIMIT)} "
                    f"(job {running.id}): wait until that has ended, or cancel it."
                )
            work = self._controller.load_work(engine, model, needs)
            return [self._jobs.start_for(owner, LOAD, target, work)]

    def _running_load(self, engine: str) -> Job | None:
        running = self._jobs.running_of(LOAD)
        return next((job for job in running if job.target.startswith(f"{engine} ")), None)

    def _full_name(self, engine: str, model: str) -> str:
        """The name of a model as its engine lists it; as it was given where none is listed so."""
        status = self._state().engines.get(engine)
        listed = find_model(status.models, model) if status else None
        return listed.name if listed else model

    async def _unload(self, engine: str, call: Call, model: str) -> list[object]:
        _check_name("model", model)
        async with self._admission.authorized(call, names.ACTION_UNLOAD_MODEL, tenant=engine, model=model):
            return [unload_details(await self._controller.unload_model(engine, model))]


def _check_name(name: str, value: str) -> None:
    if not value or len(value) > NAME_LIMIT or not value.isprintable():
        raise InvalidArgument(f"{name} must be 1 to {NAME_LIMIT} printable characters")


def _needs(options: Mapping[str, Variant]) -> int:
    """Bytes that the caller says the model needs; 0 when it does not say."""
    for name, value in options.items():
        if name != "needs" or value.signature != "t" or not 0 < value.value < UNKNOWN:
            raise unknown_option(name, value, "needs (t), in bytes")
    return int(options["needs"].value) if "needs" in options else 0
