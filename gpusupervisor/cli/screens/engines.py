"""Engines as a table, and one with its settings."""

from collections.abc import Iterable

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from gpusupervisor.cli.screens.common import DOUBTFUL, GOOD, QUIET, STRONG, Grid, table, text
from gpusupervisor.cli.shapes import Shape


def all_engines(engines: Iterable[Shape]) -> Grid | Text:
    """One line an engine; those that answer, and those of which something is known, first."""
    if not (engines := list(engines)):
        return Text("no engine is described")
    order = sorted(engines, key=lambda each: (not each["reachable"], not each["settings"], each["id"]))
    rows = [
        (text(each["id"], STRONG), text(each["version"] or "-"), text(each["endpoint"] or "-"), _answers(each))
        for each in order
    ]
    return table(("ENGINE", "VERSION", "ENDPOINT", ""), rows)


def _answers(engine: Shape) -> Text:
    return text("reachable", GOOD) if engine["reachable"] else text(engine["detail"] or "not asked yet", QUIET)


def details(engine: Shape) -> list[RenderableType]:
    """What it is, and each setting with where it comes from and what it means."""
    facts = [("endpoint", text(engine["endpoint"] or "-")), ("", _answers(engine))]
    if engine["unit"]:
        facts.append(("unit", text(engine["unit"])))
    heading = Text.assemble(
        text(engine["id"], STRONG), text(f"  {engine['engine']} {engine['version']}".rstrip(), QUIET)
    )
    screen: list[RenderableType] = [heading, table((), [(Text(name, QUIET), value) for name, value in facts])]
    for setting in engine["settings"]:
        value = f" = {setting['value']}" if setting["value"] else ""
        screen += ["", Text.assemble(text(setting["name"], STRONG), text(value), text(f"  {setting['source']}", QUIET))]
        if setting["pending"]:
            screen.append(Padding(text(f"after a restart: {setting['pending']}", DOUBTFUL), (0, 0, 0, 2)))
        if setting["meaning"]:
            screen.append(Padding(text(setting["meaning"]), (0, 0, 0, 2)))
    if not engine["settings"]:
        screen += ["", text("no settings are known", QUIET)]
    return [*screen, "", text(engine["settings_problem"], DOUBTFUL)] if engine["settings_problem"] else screen
