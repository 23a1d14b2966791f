"""What a verification has seen."""

from rich.console import RenderableType
from rich.text import Text

from gpusupervisor.cli.screens.common import STRONG, duration, size, table, text, word
from gpusupervisor.cli.shapes import Shape
from gpusupervisor.cli.text import brief

_HEADS = {
    "passed": "Everything that was tried works.",
    "partial": "Everything that was tried works, but some of it only in part.",
    "failed": "Not everything works.",
    "broken-off": "The verification was interrupted.",
}


def screen(verification: Shape) -> list[RenderableType]:
    """A line for each step, and the verdict."""
    rows = [_row(each) for each in verification["steps"]]
    header = ("STEP", "TARGET", "EXPECTED", "MEASURED", "TIME", "VERDICT", "DETAIL")
    shown: list[RenderableType] = [table(header, rows, right=(2, 3, 4), names=1)] if rows else []
    head = _HEADS.get(verification["outcome"], "")
    return [*shown, "", Text(head, STRONG)] if head else shown or [Text("No application holds memory.")]


def _row(step: Shape) -> tuple[str | Text, ...]:
    bytes_matter = step["step"] in ("release", "load", "hand-off")
    return (
        step["step"],
        text(brief(step["target"]), STRONG),
        size(step["expected"]) if bytes_matter and step["expected"] is not None else "",
        size(step["measured"]) if step["measured"] is not None else "",
        duration(step["duration"]) if step["duration"] is not None else "",
        word(step["verdict"]),
        text(step["detail"]),
    )
