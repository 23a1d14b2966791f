"""A release plan, and how one ended."""

from rich.console import RenderableType
from rich.text import Text

from gpusupervisor.cli.screens.common import STRONG, duration, size, table, text, word
from gpusupervisor.cli.shapes import Shape


def plan_screen(plan: Shape) -> list[RenderableType]:
    """What would be done, or who is in the way. Nobody is, where there is room already."""
    in_the_way = plan["blockers"] and (plan["steps"] or not plan["sufficient"])
    summary = (
        plan["summary"].partition(" In the way: ")[0] if in_the_way else plan["summary"]
    )  # the table tells of them
    screen: list[RenderableType] = [text(summary)]
    if plan["steps"]:
        rows = [(text(s["tenant"], STRONG), size(s["expected"]), text(s["reason"])) for s in plan["steps"]]
        screen += ["", table(("ASK", "FOR", "BECAUSE"), rows, right=(1,))]
    if in_the_way:
        blockers = [
            (text(b["holder"], STRONG), size(b["held"]), word(b["reason"]), text(b["detail"])) for b in plan["blockers"]
        ]
        header = ("NOT ASKED" if plan["sufficient"] else "IN THE WAY", "HOLDS", "REASON", "WHY")
        screen += ["", table(header, blockers, right=(1,))]
    return screen


def result_screen(ended: Shape) -> list[RenderableType]:
    """How a plan ended, step by step, as it was measured."""
    if not ended["steps"]:
        return [Text.assemble(word(ended["outcome"]), ": ", text(ended["detail"]))]
    rows = [
        (text(s["tenant"], STRONG), word(s["outcome"]), size(s["freed"]), duration(s["duration"]), text(s["detail"]))
        for s in ended["steps"]
    ]
    return [
        Text.assemble(word(ended["outcome"]), f": {size(ended['freed'])} came back"),
        "",
        table(("TENANT", "OUTCOME", "FREED", "TIME", "HOW"), rows, right=(2, 3)),
    ]
