"""Models in RAM."""

from rich.console import RenderableType
from rich.text import Text

from gpusupervisor.cli.screens.common import STRONG, duration, size, table, text
from gpusupervisor.cli.shapes import Shape


def plan_screen(plan: list[Shape]) -> RenderableType:
    """What is in RAM, and what is worth it."""
    if not plan:
        return Text("No model files are known: [models] in a tenant file says where they are.")
    rows = [
        (text(each["engine"]), text(each["model"], STRONG), size(each["size"]), _share(each), text(each["reason"]))
        for each in plan
    ]
    return table(("ENGINE", "MODEL", "SIZE", "IN RAM", "WHY"), rows, right=(2, 3), names=1)


def _share(step: Shape) -> str:
    if step["cached"] is None:
        return "?"
    return f"{step['cached'] * 100 // step['size'] if step['size'] else 100} %"


def result(ended: Shape) -> Text:
    """What a warm-up has read."""
    return Text(f"{size(ended['size'])} in RAM after {duration(ended['took'])}")
