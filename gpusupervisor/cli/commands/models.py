"""`models`, `load`, `unload`: what engines can run, what fits, and having it loaded."""

from typing import TYPE_CHECKING, Any

from gpusupervisor.cli import shapes
from gpusupervisor.cli.exits import DONE, CommandFailed
from gpusupervisor.cli.registry import Command, argument
from gpusupervisor.cli.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping

_ENGINE = argument("engine", metavar="ENGINE", help="its id", completes="engine")
_MODEL = argument("model", metavar="MODEL", help="its name in the engine", completes="model")


async def models(session: Session) -> int:
    """The models of one engine, or of all."""
    objects = await session.client.objects()
    wanted = session.options.engine
    engines = _each(objects, "Engine", ("id", "reachable", "models", "models_problem", "capabilities", "limits"))
    shown = [engine for engine in engines if wanted in ("", engine["id"])]
    if wanted and not shown:
        raise CommandFailed(f"No engine is called {wanted!r}. There are: {', '.join(e['id'] for e in engines)}.")
    shape = {"engines": shown, "gpus": _each(objects, "Gpu", ("uuid", "name", "ceiling", "fit_summary"))}
    if session.json:
        session.emit(shape)
    else:
        from gpusupervisor.cli.screens.models import models_screen

        session.show(*models_screen(shape))
    return DONE


async def load(session: Session) -> int:
    """Have an engine load a model, and follow the job; Ctrl-C cancels it."""
    from gpusupervisor.cli.following import follow

    path = await _ask(session, "LoadModel")
    job, code = await follow(session, path, "what was begun is unloaded again")
    if session.json:
        session.emit(job)
    elif code == DONE:
        from gpusupervisor.cli.screens.models import loaded

        session.show(loaded(job["result"]))
    return code


async def unload(session: Session) -> int:
    """Have an idle engine unload a model."""
    with session.waiting("unloading, and waiting until the engine is idle and its memory is back"):
        result = shapes.known(await _ask(session, "UnloadModel"))
    if session.json:
        session.emit(result)
    else:
        from gpusupervisor.cli.screens.models import unloaded

        session.show(unloaded(result))
    return DONE


async def _ask(session: Session, member: str) -> Any:  # noqa: ANN401  (a D-Bus value)
    from gpusupervisor.cli.client import BUS_NAME, ROOT

    wanted = [session.options.engine, session.options.model]
    return await session.client.call(member, "ss", wanted, path=f"{ROOT}/engines", interface=f"{BUS_NAME}.Engines")


def _each(objects: "Mapping[str, shapes.Interfaces]", interface: str, keys: tuple[str, ...]) -> list[shapes.Shape]:
    from gpusupervisor.cli.client import BUS_NAME

    name = f"{BUS_NAME}.{interface}"
    found = [shapes.properties(each[name]) for _, each in sorted(objects.items()) if name in each]
    return [{key: every[key] for key in keys} for every in found]


COMMANDS = (
    Command(
        "models",
        "list engines' models: what is loaded, what fits",
        models,
        (argument("engine", metavar="ENGINE", help="only of this one", completes="engine", nargs="?", default=""),),
    ),
    Command("load", "make room and have an engine load a model", load, (_ENGINE, _MODEL)),
    Command("unload", "have an idle engine unload a model, and measure", unload, (_ENGINE, _MODEL)),
)
