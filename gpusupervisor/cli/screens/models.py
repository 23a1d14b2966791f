"""Models of engines, and what became of loads."""

from rich.console import RenderableType
from rich.text import Text

from gpusupervisor.cli.screens.common import DOUBTFUL, GOOD, QUIET, STRONG, duration, size, table, text
from gpusupervisor.cli.shapes import Shape

_FITS = {"now": GOOD, "never": QUIET}


def models_screen(shape: Shape) -> list[RenderableType]:
    """A table for all engines, what is not known of those that answer, and what cards keep from models."""
    rows = [_row(engine["id"], model) for engine in shape["engines"] for model in engine["models"]]
    header = ("ENGINE", "MODEL", "STATE", "NEEDS", "FITS", "WHY")
    shown: list[RenderableType] = [table(header, rows, right=(3,), names=1)] if rows else [Text("No models are known.")]
    asked = [engine for engine in shape["engines"] if engine["reachable"] or len(shape["engines"]) == 1]
    problems = [
        text(f"{engine['id']}: {engine['models_problem']}", DOUBTFUL) for engine in asked if engine["models_problem"]
    ]
    cards = [text(f"{card['name']}: {card['fit_summary']}") for card in shape["gpus"] if card["fit_summary"]]
    silent = len(shape["engines"]) - len(asked)
    others = [Text(_silent(silent), QUIET)] if silent else []
    for lines in (problems, cards, others):
        if lines:
            shown += ["", *lines]
    return shown


def _silent(count: int) -> str:
    said = "1 more engine is absent or silent" if count == 1 else f"{count} more engines are absent or silent"
    return f"{said} (gpusupervisorctl engines lists all)"


def _row(engine: str, model: Shape) -> tuple[str | Text, ...]:
    state = f"{model['state']}, spilled" if model["spilled"] else model["state"]
    needs = size(model["needs"])
    fit = text(model["fit"], _FITS.get(model["fit"], DOUBTFUL))
    why = "; ".join(part for part in (model["fit_detail"], _loads(model["load_estimate"])) if part)
    return text(engine), text(model["name"], STRONG), text(state), needs, fit, text(why)


def _loads(estimate: str) -> str:
    return f"loads {estimate}" if estimate else ""


def loaded(result: Shape) -> Text:
    """What a load took."""
    how = "it took no VRAM beyond what its engine held already"
    if result["taken"]:
        how = f"{size(result['taken'])} of VRAM in {duration(result['duration'])}, {size(result['speed'])}/s"
    more = "; part of it is in system memory all the same" if result["spilled"] else ""
    return text(f"loaded: {how}{more}")


def unloaded(result: Shape) -> Text:
    """What an unload brought."""
    took = f" ({duration(result['duration'])})" if result["duration"] else ""
    return text(f"{result['detail']}{took}")
