"""Every printed screen as a person sees it: run on a terminal, drawn as HTML, dark and light. `make gallery`."""

import asyncio
import html
import re
import sys
import time
from io import StringIO
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from gpusupervisor.autotune.curve import Measured, Tuning, Work
from gpusupervisor.autotune.points import Point
from gpusupervisor.bus.service import BusService
from gpusupervisor.errors import GpuUnavailable
from gpusupervisor.jobs import Job, Jobs, Report
from gpusupervisor.models.load import LoadResult
from gpusupervisor.state import State
from tests.bus.builders import GIB, FakeClock
from tests.bus.conftest import PERMISSIVE, PrivateBus
from tests.bus.fakes import FakeHardware, FixedAuthority
from tests.cli.conftest import COMMAND
from tests.cli.past import Past
from tests.cli.pseudo_terminal import PseudoTerminal
from tests.cli.worlds import Decider, uuid, worlds

COLUMNS = (80, 200)
EVERYWHERE = (
    "status", "tenants", "tenant {tenant}", "engines", "engine {tenant}", "models", "plan {tenant} --size 14G",
    "plan --size 30G", "make-room --size 14G", "release {tenant}", "health", "verify --dry-run", "fans", "profile",
    "setup --dry-run", "history", "history --series holding", "load {tenant} {model}",
)  # fmt: skip
ONCE = (
    "history --series activity --since 1h", "history --series power", "events", "learned", "forget ollama", "jobs",
    "job 1", "job 2", "job 3", "job 4", "warm", "warm ollama qwen3:8b", "unload ollama qwen3:14b", "cat ollama",
    "lint", "lint {lint}", "automatic off", "automatic on", "reload", "profile try {profile}", "tenant nobody",
    "plan nobody", "release comfyui", "release desktop", "--help", "status --help", "plan --help", "history --help",
    "profile --help", "profile try --help", "warm --help", "dance", "release", "plan --size much", "events --kind no",
    "monitor",
)  # fmt: skip
_BACKGROUNDS = {"dark": ("#1e1e1e", "#d0cfcc"), "light": ("#ffffff", "#171421")}
_ANSI = ("171421", "c01c28", "26a269", "a2734c", "12488b", "a347ba", "2aa1b3", "d0cfcc")
_BRIGHT = ("5e5c64", "f66151", "33da7a", "e9ad0c", "2a7bde", "c061cb", "33c7de", "ffffff")
_PAGE = """<!doctype html><meta charset=utf-8><title>{title}</title><style>
body {{ margin: 8px; background: {back}; color: {fore}; columns: {columns}ch auto; column-gap: 3ch }}
body, pre, h2 {{ font: 13px/16px "DejaVu Sans Mono", monospace }}
pre {{ margin: 0 0 12px; white-space: pre; width: {columns}ch; outline: 1px dotted #8888 }}
h2 {{ margin: 0; background: #8884; break-after: avoid }}
i {{ display: inline-block; font-style: normal; height: 16px; vertical-align: top; overflow: hidden }}
</style>{body}"""

_RUNS = re.compile(r"(?:[ -~]?[^ -~]+)+|[ -~]+?(?=[ -~]?[^ -~]|$)")
"""Text that is as wide as it looks, and other text with the letter before it, which may carry a mark.

A run of text from right to left is whole, so that it is turned as a whole."""

Shot = tuple[str, str]
"""A command, and what was on the terminal."""


def theme(name: str) -> TerminalTheme:
    """GNOME's colours."""

    def rgb(code: str) -> tuple[int, int, int]:
        red, green, blue = bytes.fromhex(code)
        return red, green, blue

    back, fore = (rgb(code.removeprefix("#")) for code in _BACKGROUNDS[name])
    return TerminalTheme(back, fore, [rgb(code) for code in _ANSI], [rgb(code) for code in _BRIGHT])


def drawn(written: str, columns: int, colours: TerminalTheme) -> str:
    """What a terminal makes of it, as HTML in which every character is as wide as it is there."""
    console = Console(width=columns, file=StringIO())
    lines = [
        part
        for line in Text.from_ansi(_left(written)).split("\n", allow_blank=True)
        for part in (line.divide(range(columns, line.cell_len, columns)) if line.cell_len > columns else [line])
    ]
    return "\n".join("".join(_html(*each, colours) for each in line.render(console)) for line in lines)


def _html(text: str, style: Style | None, _: object, colours: TerminalTheme) -> str:
    look = style.get_html_style(colours) if style else ""
    return f'<span style="{html.escape(look)}">{"".join(map(_cell, _RUNS.findall(text)))}</span>'


def _left(written: str) -> str:
    """What is left on the terminal: a line that was erased is not."""
    return re.sub(r"[^\n]*(?:\n\x1b\[\?25h\r\x1b\[1A)?\x1b\[2K", "", written.replace("\r\n", "\n"))


def _cell(text: str) -> str:
    escaped = html.escape(text)
    return escaped if text.isascii() else f'<i style="width:{cell_len(text)}ch">{escaped}</i>'


class Gallery:
    """A bus, a service on it that shows a world, and the screens of both widths."""

    def __init__(self, folder: Path, bus: PrivateBus) -> None:
        self.folder = folder
        self.bus = bus
        self.decider = Decider()
        self.authority = FixedAuthority()
        self.jobs = Jobs(FakeClock(), self._show)
        self.service: BusService
        self._few = asyncio.Semaphore(4)

    def _show(self, job: Job) -> None:
        self.service.show_job(job)

    async def start(self) -> None:
        """The service, with a past."""
        past = Past(time.time_ns() // 1000)
        past.figures = {
            series._replace(gpu=uuid(0) if series.gpu else ""): figures for series, figures in past.figures.items()
        }
        self.service = await BusService.start(
            self.bus.address, self.decider, FakeHardware(), self.jobs, "1.2.3", FakeClock(),
            lambda _: self.authority, past,
        )  # fmt: skip

    async def shot(self, command: str, columns: int, bus: str = "") -> Shot:
        """One run to its end; Ctrl-C ends what does not end by itself."""
        async with self._few:
            terminal = await PseudoTerminal.run(
                *COMMAND, *command.split(), columns=columns,
                environment={"DBUS_SYSTEM_BUS_ADDRESS": bus or self.bus.address, "TZ": "UTC"},
            )  # fmt: skip
            if command == "monitor":
                await asyncio.sleep(2)
                self.service.publish(worlds()["one"])
                await terminal.wait_for("check configuration")
                terminal.press(b"\x03")
            code = await terminal.end()
            return (f"{command}  [{code}]", terminal.written)

    async def of_world(self, name: str, world: State) -> None:
        """All screens of one world."""
        self.decider.world = world
        self.service.publish(world)
        if name == "typical":
            await self.work()
        names = {
            "tenant": next(iter(world.situation.tenants), "vllm"), "model": "qwen3:14b",
            "lint": self.folder / "broken.toml", "profile": self.folder / "profile.json",
        }  # fmt: skip
        commands = [each.format(**names) for each in (*EVERYWHERE, *(ONCE if name == "typical" else ()))]
        for columns in COLUMNS:
            shots = await asyncio.gather(*(self.shot(each, columns) for each in commands if each != "monitor"))
            if name == "typical":
                shots += [*await self.refused(columns), await self.shot("monitor", columns)]
                self.service.publish(world)
            self.write(name, columns, shots)

    async def refused(self, columns: int) -> list[Shot]:
        """What a person is told who may not, and where there is no service, and no bus."""
        self.authority.allow = False
        shots = [await self.shot("make-room --size 14G", columns)]
        self.authority.allow = True
        empty = PrivateBus(PERMISSIVE)
        shots += [await self.shot("status", columns, empty.address), await self.shot("-H me@box status", columns)]
        empty.stop()
        return [*shots, await self.shot("status", columns, empty.address)]

    async def work(self) -> None:
        """Jobs of every kind and end."""
        points = [Measured(Point(limit), Work(256, 4_000_000 - limit), limit - 9000, 60 + limit // 9000, frozenset())
                  for limit in range(150_000, 481_000, 66_000)]  # fmt: skip

        async def tunes(_: Report) -> object:
            return Tuning("token", 3, tuple(points), points[2], '{"power-limit": "282W"}')

        async def loads(_: Report) -> object:
            return LoadResult("ollama", "qwen3:14b", uuid(0), 12 * GIB, 3_200_000, spilled=True, retried=False)

        async def fails(_: Report) -> object:
            raise GpuUnavailable("NVIDIA GeForce RTX 4090 has fallen off the bus")

        async def runs(report: Report) -> object:
            report(42, "point 4 of 9: 280 W")
            return await asyncio.Event().wait()

        for kind, work, target in (("autotune", tunes, uuid(0)), ("load-model", loads, "ollama qwen3:14b"),
                                   ("warm-up", fails, "ollama qwen3:14b"), ("autotune", runs, uuid(0))):  # fmt: skip
            self.jobs.start(kind, work, target, owner=1000)
        await asyncio.sleep(0.1)

    def write(self, world: str, columns: int, shots: list[Shot]) -> None:
        """A page for each theme, and the same as text."""
        for name, (back, fore) in _BACKGROUNDS.items():
            body = "".join(
                f"<h2>{html.escape(command)}</h2><pre>{drawn(written, columns, theme(name))}</pre>"
                for command, written in shots
            )
            title = f"{world}-{columns}-{name}"
            page = _PAGE.format(title=title, back=back, fore=fore, columns=columns, body=body)
            (self.folder / f"{title}.html").write_text(page)
        text = "\n".join(f"### {c}\n{Text.from_ansi(_left(w)).plain}" for c, w in shots)
        (self.folder / f"{world}-{columns}.txt").write_text(text)


async def main(folder: Path, wanted: list[str]) -> None:
    """Write all pages, or those of some worlds."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "broken.toml").write_text('priority = 300\ncolour = "red"\n')
    (folder / "profile.json").write_text('{"power-limit": "300W"}')
    bus = PrivateBus(PERMISSIVE)
    try:
        for name, world in worlds().items():
            if not wanted or name in wanted:
                gallery = Gallery(folder.resolve(), bus)
                await gallery.start()
                await gallery.of_world(name, world)
                await gallery.jobs.close()
                await gallery.service.stop()
    finally:
        bus.stop()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
