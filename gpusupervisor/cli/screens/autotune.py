"""What an autotune measured, and how to try the best of it."""

import shlex

from rich.console import RenderableType
from rich.text import Text

from gpusupervisor.cli.screens.common import GOOD, table, text
from gpusupervisor.cli.shapes import Shape
from gpusupervisor.cli.text import brief, safe


def curve(result: Shape) -> list[RenderableType]:
    """The points as a table."""
    points = result.get("curve", [])
    if not points:
        return [Text("Nothing was measured; the card is as it was.")]
    unit, best = result["unit"], result.get("proposal")
    offsets = any("offset_graphics" in point for point in points)
    header = ("LIMIT", *(("OFFSET",) if offsets else ()), text(f"{unit.upper()}S/S").plain, "POWER",
              text(f"J/{unit.upper()}").plain, "HOTTEST", "")  # fmt: skip
    rows = [_row(point, offsets, point == best) for point in points]
    shown: list[RenderableType] = [table(header, rows, right=range(len(header) - 1)), ""]
    if best is None:
        return [*shown, Text("It ended early; the card is as it was.")]
    slower = f"at most {result['tolerance']} % slower than the fastest" if result["tolerance"] else "the fastest"
    why = f"Proposed: the limit with the least energy per {safe(unit)} of those that are {slower}."
    return [*shown, Text(why), Text("Nothing was changed. To try it for a minute, and then to keep it:"), ""]


def _row(point: Shape, with_offset: bool, best: bool) -> tuple[str | Text, ...]:
    return (
        f"{point['power_limit'] / 1000:g} W",
        *((f"{point.get('offset_graphics', 0):+} MHz",) if with_offset else ()),
        f"{point['throughput']:.1f}",
        f"{point['power'] / 1000:.0f} W",
        f"{point['energy_per_unit'] / 1000:.2f}",
        f"{point['hottest']} °C",
        Text("<- proposed" if best else "", GOOD),
    )


def proposal(result: Shape, uuid: str) -> list[str]:
    """The commands that try the best point and keep it, where one is proposed: lines to be copied, and never folded."""
    if "profile" not in result:
        return []
    command = shlex.join(["gpusupervisorctl", "profile", "try", "-", "--gpu", brief(uuid), "--within", "1min"])
    return [
        f"  echo {shlex.quote(result['profile'])} | {command}",
        f"  {shlex.join(['gpusupervisorctl', 'profile', 'confirm', '--gpu', brief(uuid)])}",
    ]
