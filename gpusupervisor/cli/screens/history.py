"""Figures over time, plotted."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby, pairwise
from math import ceil, floor, log10

import plotext
from rich.console import RenderableType
from rich.text import Text

from gpusupervisor.cli.screens.common import STRONG, Grid, size, text
from gpusupervisor.cli.shapes import Shape
from gpusupervisor.cli.terminal import Canvas

_HEIGHT = 16
_WIDEST = 160
_GIB = 1024**3
_COLOURS = ("cyan", "green", "magenta", "blue", "yellow", "red")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ACTIVITIES = ("absent", "idle", "busy", "stuck", "unknown", "claimed", "stirring")
_TITLES = {
    "used": "memory in use", "free": "memory free", "unattributed": "memory in use that is nobody's",
    "power": "power drawn", "temperature": "temperature", "utilization": "time in which it worked",
    "holding": "memory held", "shortfall": "memory missing", "need": "memory needed", "activity": "activity",
}  # fmt: skip
_UNITS = {"power": (1000, "W"), "temperature": (1, "°C"), "utilization": (1, "%"), "activity": (1, "")}
"""What one unit of a plot is of the figure, and its name."""
_BYTES = (_GIB, "GiB")
_DAY = 24 * 3600 * 1_000_000
_TICKS = 5


def plots(
    curves: Sequence[Shape], gpus: Mapping[str, Shape], begin: int, until: int, canvas: Canvas
) -> list[RenderableType]:
    """One plot for each kind of figure, with a line of figures for each curve; gpus: by UUID."""
    shown: list[RenderableType] = []
    for name, group in groupby(curves, key=lambda curve: str(curve["series"])):
        drawn = [curve for curve in group if curve["points"]]
        if drawn:
            unit = _UNITS.get(name, _BYTES)[1]
            title = f"{_TITLES[name]}, {unit}" if unit else _TITLES[name]
            shown += [Text(title, STRONG), _plot(name, drawn, gpus, begin, until, canvas)]
            legend = [
                _legend(name, curve, gpus, _mark(number, len(drawn), canvas), canvas)
                for number, curve in enumerate(drawn)
            ]
            shown += [Grid((), legend), ""]
    return shown[:-1]


def _plot(
    name: str, curves: Sequence[Shape], gpus: Mapping[str, Shape], begin: int, until: int, canvas: Canvas
) -> Text:
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plot_size(min(canvas.width, _WIDEST), _HEIGHT)
    plotext.frame(canvas.unicode)
    for number, curve in enumerate(curves):
        marker, colour = _mark(number, len(curves), canvas)
        for stretch in _unbroken(curve["points"]):
            x, y = _path(stretch, _UNITS.get(name, _BYTES)[0])
            plotext.plot(x, y, marker=marker, color=colour)
    plotext.xlim(begin, until)
    _ticks(begin, until)
    if name == "activity":
        plotext.yticks(range(len(_ACTIVITIES)), _ACTIVITIES)
        plotext.ylim(0, len(_ACTIVITIES) - 1)
    else:
        marks = _even(_top(name, curves, gpus))
        plotext.yticks(marks, [f"{mark:g}" for mark in marks])
        plotext.ylim(0, marks[-1])
    drawn = Text.from_ansi(plotext.build().rstrip("\n"))
    drawn.no_wrap = True
    return drawn if canvas.colours else Text(drawn.plain, no_wrap=True)


def _top(name: str, curves: Sequence[Shape], gpus: Mapping[str, Shape]) -> float:
    """The upper end: the whole card where a figure is a part of one that is known."""
    most = max(point["most"] for curve in curves for point in curve["points"])
    if name in _UNITS:
        return 100.0 if name == "utilization" else float(max(most / _UNITS[name][0], 1))
    cards = [gpus[curve["gpu"]]["memory_total"] or 0 for curve in curves if curve["gpu"] in gpus]
    whole = max(cards, default=0) if name in ("used", "free", "holding") else 0
    return float(max(most, whole, 1) / _GIB)


def _even(top: float) -> list[float]:
    """Figures from 0 on at equal distances, none of them odd, the last at `top` or above it."""
    unit = 10.0 ** floor(log10(top / 6))
    step = next(unit * n for n in (1, 2, 4, 5, 10, 20) if top <= 6 * unit * n)
    return [step * n for n in range(ceil(top / step) + 1)]


def _ticks(begin: int, until: int) -> None:
    places = [begin + (until - begin) * n // (_TICKS - 1) for n in range(_TICKS)]
    form = "%H:%M" if until - begin <= _DAY else "%d.%m. %H:%M"
    plotext.xticks(places, [datetime.fromtimestamp(at / 1e6).astimezone().strftime(form) for at in places])


def _mark(number: int, count: int, canvas: Canvas) -> tuple[str, str]:
    """Marker and colour: letters where colours do not tell curves apart."""
    colour = _COLOURS[number % len(_COLOURS)]
    if not canvas.colours and count > 1:
        return _LETTERS[number % len(_LETTERS)], colour
    return ("braille" if canvas.unicode else "*"), colour


def _unbroken(points: Sequence[Shape]) -> Iterator[list[Shape]]:
    """Points without a gap between them: over a time of which nothing is known no line is drawn."""
    step = min((b["begin"] - a["begin"] for a, b in pairwise(points)), default=0)
    stretch = [points[0]]
    for point in points[1:]:
        if point["begin"] - stretch[-1]["begin"] > step * 3 // 2:
            yield stretch
            stretch = []
        stretch.append(point)
    yield stretch


def _path(points: Sequence[Shape], unit: int) -> tuple[list[int], list[float]]:
    """Through the least and the most of each stretch, so that peaks are seen however narrow the plot."""
    x, y = [], []
    for point in points:
        for value in dict.fromkeys((point["least"], point["most"])):
            x.append(point["begin"])
            y.append(value / unit)
    return x, y


def _legend(
    name: str, curve: Shape, gpus: Mapping[str, Shape], mark: tuple[str, str], canvas: Canvas
) -> tuple[Text, Text]:
    marker, colour = mark
    sign = (("━━" if canvas.unicode else "--"), colour) if canvas.colours else (marker if len(marker) == 1 else "-", "")
    card = gpus.get(curve["gpu"] or "", {}).get("name") or curve["gpu"]
    whose = ", ".join(part for part in (curve["tenant"], card) if part)
    points = curve["points"]
    if name == "activity":
        return Text(*sign), text(whose)
    least, most = min(p["least"] for p in points), max(p["most"] for p in points)
    last, least, most = (_figure(name, value) for value in (points[-1]["mean"], least, most))
    return Text(*sign), Text.assemble(text(whose), f": {last} at the end, {least} to {most}")


def _figure(name: str, value: int) -> str:
    """In words."""
    scale, unit = _UNITS.get(name, _BYTES)
    return f"{value / scale:.0f} {unit}" if name in _UNITS else size(value)
