"""Every self-check."""

from rich.console import RenderableType
from rich.text import Text

from gpusupervisor.cli.screens.common import QUIET, table, text, word
from gpusupervisor.cli.shapes import Shape
from gpusupervisor.cli.text import brief

_ORDER = ("failed", "degraded", "ok", "skipped")


def screen(health: Shape) -> list[RenderableType]:
    """The worst first, each with what it breaks and what to do."""
    rows: list[tuple[Text, Text, Text]] = []
    for check in sorted(health["checks"], key=_rank):
        rows.append((word(check["state"]), text(brief(check["id"])), text(check["summary"])))
        if check["state"] in ("failed", "degraded"):
            rows += [(Text(), Text(), Text.assemble((f"{kind}: ", QUIET), text(check[kind]))) for kind in
                     ("impact", "remedy") if check[kind]]  # fmt: skip
        elif check["state"] == "skipped" and check["remedy"]:
            rows.append((Text(), Text(), Text.assemble(("optional: ", QUIET), text(check["remedy"]))))
    head = Text.assemble(word(health["state"]), ": ", text(health["summary"]))
    return [head, "", table(("STATE", "CHECK", "FOUND"), rows, names=1)] if rows else [head]


def _rank(check: Shape) -> int:
    return _ORDER.index(check["state"]) if check["state"] in _ORDER else 0
