"""What is asked of a person, and what is shown until it is read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.console import Group, RenderableType
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Label, Select, Static

from gpusupervisor.cli.screens.common import BAD, QUIET, STRONG
from gpusupervisor.quantities import parse_bytes

_STYLE = """
    { align: center middle; }
    #box { width: 90%; max-width: 110; height: auto; max-height: 90%; border: solid ansi_default; padding: 0 1;
           background: ansi_default; }
    #text { height: auto; max-height: 60vh; background: ansi_default; }
    Static { background: ansi_default; }
"""


class Shown(ModalScreen[bool]):
    """Something to read; with a question, y or n answers it: the result is whether it was y."""

    DEFAULT_CSS = "Shown " + _STYLE.strip()
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape,q", "answer(False)", "close"),
        Binding("enter", "close", "close"),
        Binding("down", "scroll(1)"),
        Binding("up", "scroll(-1)"),
    ]

    def __init__(self, title: str, parts: Sequence[RenderableType], question: str = "") -> None:
        """title and question: safe text."""
        super().__init__()
        self._heading = title
        self._parts = parts
        self._question = question

    def compose(self) -> ComposeResult:
        """Title, text, and what can be pressed."""
        with Vertical(id="box"):
            yield Static(Text(self._heading, STRONG))
            yield Static("")
            with VerticalScroll(id="text", can_focus=False):
                yield Static(Group(*self._parts))
            yield Static("")
            yield Static(Text(f"{self._question}  y/n", STRONG) if self._question else Text("Esc closes", QUIET))

    def action_answer(self, yes: bool) -> None:
        """y, or n; without a question y means nothing."""
        if not yes or self._question:
            self.dismiss(yes)

    def action_close(self) -> None:
        """Enter closes what was only shown; a question wants y or n."""
        if not self._question:
            self.dismiss(False)

    def action_scroll(self, by: int) -> None:
        """Read on."""
        self.query_one("#text", VerticalScroll).scroll_relative(y=by, animate=False)


@dataclass(frozen=True, slots=True)
class Room:
    """For whom room is wanted, how much, and where, as MakeRoom takes it."""

    tenant: str
    size: int
    gpu: str


class RoomForm(ModalScreen[Room | None]):
    """Asks for whom, how much, and on which card, where there are several."""

    DEFAULT_CSS = "RoomForm " + _STYLE.strip() + """
    RoomForm Input, RoomForm SelectCurrent { background: ansi_default; color: ansi_default; }
    RoomForm SelectCurrent { border: solid ansi_default; }
    RoomForm Label { margin-top: 1; }
    """  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "close")]

    def __init__(self, tenant: str, gpus: Sequence[tuple[str, str]]) -> None:
        """gpus: (name, UUID) of each card; both safe."""
        super().__init__()
        self._tenant = tenant
        self._gpus = gpus

    def compose(self) -> ComposeResult:
        """The form."""
        with Vertical(id="box"):
            yield Static(Text("Make room", STRONG))
            yield Label("For tenant (empty: for nobody in particular)")
            yield Input(self._tenant, id="tenant", compact=True)
            yield Label('Bytes, e.g. "8G" (empty: what the tenant needs)')
            yield Input("", id="size", compact=True)
            if len(self._gpus) > 1:
                yield Label("GPU")
                yield Select(self._gpus, prompt="the tenant's", id="gpu", compact=True)
            yield Static("", id="wrong")
            yield Static(Text("Enter shows the plan, nothing is done yet; Tab goes on, Esc closes", QUIET))

    def on_mount(self) -> None:
        """The size is what is asked for most."""
        self.query_one("#size").focus()

    def on_input_submitted(self) -> None:
        """Enter, in whichever field."""
        tenant = self.query_one("#tenant", Input).value.strip()
        typed = self.query_one("#size", Input).value.strip()
        try:
            size = parse_bytes(typed) if typed else 0
        except ValueError as error:
            self.query_one("#wrong", Static).update(Text(str(error), BAD))
            return
        chosen = self.query_one("#gpu", Select).value if len(self._gpus) > 1 else ""
        self.dismiss(Room(tenant, size, chosen if isinstance(chosen, str) else ""))

    def action_cancel(self) -> None:
        """Nothing is asked for."""
        self.dismiss(None)
