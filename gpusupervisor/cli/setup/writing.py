"""Proposals put before a person, and into files."""

from collections.abc import Iterable
from typing import Literal

from gpusupervisor.cli import overrides
from gpusupervisor.cli.asking import ask
from gpusupervisor.cli.exits import CommandFailed
from gpusupervisor.cli.session import Session
from gpusupervisor.cli.setup.item import Item
from gpusupervisor.cli.setup.proposals import Proposal
from gpusupervisor.cli.setup.toml_text import CannotExtend

Mode = Literal["show", "ask", "yes"]
"""show: nothing is written. yes: everything is, but a person's own files."""


def drafted(proposal: Proposal) -> Item:
    """A proposal with the file as it is now and as it will be."""
    item = Item(proposal, overrides.override(proposal.tenant))
    item.before = overrides.content(item.file)
    if item.before is not None and not item.before.strip():
        return _left(item, "the file is empty, which hides the tenant")
    if item.before is not None and (proposal.new or item.file.suffix != ".toml"):
        return _left(item, "there is a file already; what is proposed has to be put into it by hand")
    try:
        item.text = proposal.text(item.before)
    except CannotExtend as problem:
        return _left(item, f"{problem}; change it with gpusupervisorctl edit {proposal.tenant}")
    return item


def _left(item: Item, why: str) -> Item:
    item.outcome, item.detail = "left", why
    return item


class Writer:
    """Goes through proposals one by one."""

    def __init__(self, session: Session, mode: Mode) -> None:
        self._session = session
        self._mode = mode

    async def carry_out(self, proposals: Iterable[Proposal]) -> list[Item]:
        """Show each, ask where a person is to be asked, and write. Raises CommandFailed where a file cannot be read."""
        todo = list(proposals)
        items: list[Item] = []
        for number, proposal in enumerate(todo, 1):
            item = drafted(proposal)
            items.append(item)
            self._show(item, number, len(todo))
            if item.outcome == "proposed" and self._mode != "show":
                wanted = await self._is_wanted(item)
                if wanted is None:
                    self._session.say("Stopped: nothing more was written.")
                    return items
                if wanted:
                    await self._write(item)
            if item.outcome != "proposed":
                self._tell(f"{item.outcome}: {item.detail}" if item.detail else item.outcome)
        return items

    def _show(self, item: Item, number: int, of: int) -> None:
        if not self._session.json:
            from gpusupervisor.cli.screens.setup import proposal

            self._session.show(*proposal(item, number, of))

    async def _is_wanted(self, item: Item) -> bool | None:
        """Whether it is to be written; None to write no more."""
        if self._mode == "yes":
            if item.before is None:
                return True
            _left(item, "a file that is there is extended only when you are asked: run it without --yes")
            return False
        typed = await answer("Extend the file? [y/n/q] " if item.before is not None else "Write it? [y/n/q] ")
        if typed == "n":
            item.outcome = "declined"
        return None if typed == "q" else typed == "y"

    async def _write(self, item: Item) -> None:
        try:
            problems = await overrides.put(self._session.client, item.file, item.before, item.text)
        except CommandFailed as failure:
            problems = str(failure).splitlines()
        if problems:
            item.outcome, item.detail = "failed", " ".join(problems)
            return
        item.outcome, item.detail = "written", f"{item.file} is in force"

    def _tell(self, text: str) -> None:
        if not self._session.json:
            self._session.say(f"-> {text}")


async def answer(question: str) -> str:
    """y, n or q; the end of the input is q."""
    while True:
        try:
            typed = await ask(question)
        except EOFError:
            return "q"
        if typed in ("y", "yes", "n", "no", "q", "quit"):
            return typed[0]
