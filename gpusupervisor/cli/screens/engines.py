"""Engines as a table, and one with its settings."""

from collections.abc import Iterable

from rich.console import RenderableType
from rich.text import Text

from gpusupervisor.cli.screens.common import DOUBTFUL, GOOD, QUIET, STRONG, Grid, absent, marked, table, text
from gpusupervisor.cli.shapes import Shape


def all_engines(engines: Iterable[Shape]) -> list[RenderableType]:
    """One line for each engine of which something is known, those that answer first; the others by name."""
    if not (order := sorted(engines, key=lambda each: (not each["reachable"], not each["settings"], each["id"]))):
        return [Text("No engine is described.")]
    known = [each for each in order if each["reachable"] or each["endpoint"] or each["settings"]]
    rows = [
        (
            text(each["id"], STRONG), Text("answers", GOOD) if each["reachable"] else Text("no answer", DOUBTFUL),
            text(each["version"] or "-"), text(each["endpoint"] or "-"),
            Text() if each["reachable"] else text(each["detail"] or "not asked yet"),
        )
        for each in known
    ]  # fmt: skip
    shown: list[RenderableType] = [table(("ENGINE", "STATE", "VERSION", "ENDPOINT", "WHY"), rows)] if rows else []
    shown += absent([each["id"] for each in order if each not in known])
    return shown if rows else shown[1:]


def details(engine: Shape) -> list[RenderableType]:
    """What it is, and each setting with where it comes from and what it means."""
    facts = [
        ("state", Text("answers", GOOD) if engine["reachable"] else text(engine["detail"] or "not asked yet")),
        ("endpoint", text(engine["endpoint"] or "not known")),
    ]
    if engine["unit"]:
        facts.append(("unit", text(engine["unit"])))
    more = [engine[key] for key in ("engine", "version") if engine[key] not in ("", engine["id"])]
    heading = Text.assemble(text(engine["id"], STRONG), text(f"  {' '.join(more)}".rstrip(), QUIET))
    screen: list[RenderableType] = [heading, table((), [(Text(name, QUIET), value) for name, value in facts])]
    for setting in engine["settings"]:
        value = f" = {setting['value']}" if setting["value"] else ""
        screen += ["", Text.assemble(text(setting["name"], STRONG), text(value), text(f"  {setting['source']}", QUIET))]
        if setting["pending"]:
            screen.append(_indented(text(f"after a restart: {setting['pending']}", DOUBTFUL)))
        if setting["meaning"]:
            screen.append(_indented(text(setting["meaning"])))
    if not engine["settings"]:
        screen += ["", text("No settings are known.", QUIET)]
    screen += ["", text(_checked(engine), QUIET)]
    return [*screen, "", text(engine["settings_problem"], DOUBTFUL)] if engine["settings_problem"] else screen


def _checked(engine: Shape) -> str:
    version = engine["settings_checked_against"]
    if not version:
        return f"Which version of {engine['engine']} its settings were checked against is not recorded."
    return f"settings checked against {engine['engine']} {version}"


def _indented(sentence: Text) -> Grid:
    return marked([(Text(" "), sentence)])
