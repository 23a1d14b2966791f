"""Lines on the terminal, of which only those that have changed are drawn again."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

_CHOSEN = Style(reverse=True)
_MARK = 2
"""Columns at the beginning of a line that look the same when it is chosen: they may hold a coloured mark."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line; a person can choose those that have a key."""

    text: Text
    key: str = ""


@dataclass(frozen=True, slots=True)
class Content:
    """What a page shows."""

    lines: Sequence[Line] = ()
    head: Sequence[Text] = field(default=())
    """Lines that stay when the others are scrolled."""


class Page(ScrollView):
    """A part of the screen."""

    DEFAULT_CSS = """
    Page { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; background: ansi_default; }
    """

    class Chosen(Message):
        """A line with a key was clicked."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, *, id: str) -> None:  # noqa: A002  (textual's word)
        super().__init__(id=id)
        self.can_focus = False
        self._content = Content()
        self._chosen = ""

    def show(self, content: Content, chosen: str = "") -> None:
        """Show these lines, with one of them chosen."""
        before, chosen_before = self._content, self._chosen
        followed = chosen == chosen_before and self._sees(chosen)
        self._content, self._chosen = content, chosen
        self._draw_changes(before, chosen_before)
        if followed:
            self.reveal(chosen)  # it may have got another place

    def _draw_changes(self, before: Content, chosen_before: str) -> None:
        content, chosen = self._content, self._chosen
        count = len(content.head) + len(content.lines)
        if count != len(before.head) + len(before.lines) or len(before.head) != len(content.head):
            self.virtual_size = Size(self.size.width, count)
            self.refresh()
            return
        for y, (old, new) in enumerate(zip(before.head, content.head, strict=True)):
            if old != new:
                self.refresh_lines(y + self.scroll_offset.y)
        for y, (old_line, new_line) in enumerate(zip(before.lines, content.lines, strict=True), len(content.head)):
            moved = chosen != chosen_before and {old_line.key, new_line.key} & {chosen, chosen_before} - {""}
            if moved or (old_line is not new_line and old_line != new_line):
                self.refresh_lines(y)

    @property
    def keys(self) -> list[str]:
        """What can be chosen, from above."""
        return [line.key for line in self._content.lines if line.key]

    def reveal(self, key: str) -> None:
        """Scroll so that a line can be seen."""
        y = self._place(key)
        if y is not None and not self._sees(key):
            top = self.scroll_offset.y
            self.scroll_to(y=y if y < top else y - self._room + 1, animate=False, force=True)

    @property
    def _room(self) -> int:
        """Lines that can be seen at once, beside the head."""
        return max(self.size.height - len(self._content.head), 1)

    def _place(self, key: str) -> int | None:
        return next((y for y, line in enumerate(self._content.lines) if line.key == key), None) if key else None

    def _sees(self, key: str) -> bool:
        y = self._place(key)
        return y is not None and 0 <= y - self.scroll_offset.y < self._room

    def render_line(self, y: int) -> Strip:
        """Textual's question for one line as it is on the screen."""
        width = self.size.width
        head = self._content.head
        if y < len(head):
            return strip(head[y], self.app.console).adjust_cell_length(width)
        place = y - len(head) + self.scroll_offset.y
        if place >= len(self._content.lines):
            return Strip.blank(width)
        line = self._content.lines[place]
        drawn = strip(line.text, self.app.console).adjust_cell_length(width)
        if not line.key or line.key != self._chosen:
            return drawn
        mark, rest = drawn.divide([_MARK, width])
        return Strip.join([mark, Strip([Segment(part.text, _CHOSEN) for part in rest])])

    def on_click(self, event: Click) -> None:
        """Choose what is clicked."""
        place = event.y - len(self._content.head) + self.scroll_offset.y
        if event.y >= len(self._content.head) and place < len(self._content.lines):
            key = self._content.lines[place].key
            if key:
                self.post_message(self.Chosen(key))


def strip(text: Text, console: Console) -> Strip:
    """A line as textual has it."""
    drawn = Strip(text.render(console))
    return drawn.apply_style(console.get_style(text.style)) if text.style and not text.spans else drawn


def lines(renderables: Sequence[RenderableType], console: Console, width: int) -> list[Line]:
    """What rich draws, line by line."""
    options = console.options.update(width=max(width, 1), height=None)
    return [
        Line(Text.assemble(*((part.text, part.style or "") for part in segments if not part.control)))
        for each in renderables
        for segments in console.render_lines(each, options, pad=False)
    ]
