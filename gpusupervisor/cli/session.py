"""What a handler is given: the options, the connection, and the ways out."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpusupervisor.cli.text import folded, is_utf8, safe_lines

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from gpusupervisor.cli.client import Client
    from gpusupervisor.cli.terminal import Canvas


class Session:
    """One run of one command."""

    def __init__(self, options: argparse.Namespace, client: "Client | None" = None) -> None:
        self.options = options
        self.json = bool(getattr(options, "json", False))
        self._client = client
        self._console: Console | None = None

    @property
    def client(self) -> "Client":
        """The connection to the service; only commands that connect have one."""
        if self._client is None:
            raise RuntimeError("this command is declared without connects")
        return self._client

    @property
    def console(self) -> "Console":
        """Standard output as rich has it, made when first needed."""
        if self._console is None:
            from gpusupervisor.cli.terminal import console

            self._console = console(sys.stdout)
        return self._console

    @property
    def canvas(self) -> "Canvas":
        """What screens have to know of standard output."""
        from gpusupervisor.cli.terminal import canvas

        return canvas(self.console)

    def show(self, *renderables: "RenderableType") -> None:
        """Print for a person."""
        console = self.console
        if console.is_terminal:
            for each in renderables:
                console.print(each)
            return
        with console.capture() as drawn:
            for each in renderables:
                console.print(each)
        print("\n".join(line.rstrip() for line in drawn.get().splitlines()))

    def say(self, text: object) -> None:
        """Print text of a line or several as it is, but for what steers a terminal."""
        print(safe_lines(text), flush=True)

    def note(self, text: object) -> None:
        """Print on standard error."""
        print(folded(text, sys.stderr), file=sys.stderr, flush=True)

    def emit(self, shape: object, *, line: bool = False) -> None:
        """Print a shape as JSON, indented, or on one line for a stream of them."""
        import json

        print(json.dumps(shape, indent=None if line else 2, ensure_ascii=not is_utf8(sys.stdout.encoding)), flush=line)

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show that something is waited for, where a person watches."""
        if self.json or not (sys.stderr.isatty() and sys.stdout.isatty()):
            yield
            return
        from gpusupervisor.cli.terminal import canvas, console

        errors = console(sys.stderr)
        with errors.status(text, spinner="dots" if canvas(errors).unicode else "line"):
            yield
