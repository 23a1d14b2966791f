"""The live screen: keys, views, and what is asked of the service for a person."""

import asyncio
from contextlib import suppress
from typing import Any, ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.widgets import Footer

from gpusupervisor.cli import shapes
from gpusupervisor.cli.client import ROOT, TENANTS
from gpusupervisor.cli.exits import CommandFailed
from gpusupervisor.cli.screens.common import BAD, LIVELY, QUIET, text
from gpusupervisor.cli.screens.plans import plan_screen, result_screen
from gpusupervisor.cli.screens.status import head
from gpusupervisor.cli.terminal import Canvas
from gpusupervisor.cli.text import safe, safe_lines
from gpusupervisor.cli.top import overview
from gpusupervisor.cli.top.board import JOB, TENANT, Board, now
from gpusupervisor.cli.top.dialogs import Room, RoomForm, Shown
from gpusupervisor.cli.top.feed import Feed
from gpusupervisor.cli.top.help import HELP
from gpusupervisor.cli.top.overview import SORTS, UNMANAGED, Wish
from gpusupervisor.cli.top.page import Content, Line, Page
from gpusupervisor.cli.top.trace import STEP
from gpusupervisor.cli.top.views import VIEWS, Look, shape_of_job, whole_job

REFRESH = 1.0
"""Seconds between two refreshes, where nobody presses a key."""
_NARROW = 100
_ONLY_IN = {
    "details": {"overview"}, "plan": {"overview", "tenant"}, "release": {"overview", "tenant"}, "cancel_job": {"jobs"},
    "sort": {"overview"}, "reverse": {"overview"}, "absent": {"overview"},
    "close": {view.name for view in VIEWS[1:]},
}  # fmt: skip
"""The views in which a key means something; the others mean something in all of them."""


class Top(App[None]):
    """Drawn in the terminal's own colours, so that it reads on dark and on light."""

    CSS = """
    Screen { background: ansi_default; color: ansi_default; overflow: hidden; }
    ModalScreen { background: transparent; }
    #head, #tabs, #cards, #notice { height: 1; overflow: hidden; scrollbar-size-vertical: 0; }
    #cards, #notice { display: none; }
    """
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n), f"view('{view.name}')", view.title, show=False) for n, view in enumerate(VIEWS, 1)),
        Binding("right,tab", "turn(1)", show=False),
        Binding("left,shift+tab", "turn(-1)", show=False),
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "leaf(-1)", show=False),
        Binding("pagedown", "leaf(1)", show=False),
        Binding("home", "far(-1)", show=False),
        Binding("end", "far(1)", show=False),
        Binding("enter", "details", "Details", key_display="Enter"),
        Binding("escape", "close", "Back", key_display="Esc"),
        Binding("p", "plan", "Plan"),
        Binding("r", "release", "Release"),
        Binding("m", "make_room", "Make room"),
        Binding("c", "cancel_job", "Cancel job"),
        Binding("s", "sort", "Sort"),
        Binding("S", "reverse", show=False),
        Binding("a", "absent", "Absent"),
        Binding("question_mark,h,f1", "explain", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),  # also where a field would copy
    ]

    def __init__(self, board: Board, feed: Feed, *, unicode: bool, host: str = "") -> None:
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self._board = board
        self._feed = feed
        self._unicode = unicode
        self._host = host
        self._view = VIEWS[0]
        self._wish = Wish()
        self._tenant = ""
        self._job = ""
        self._waiting: list[str] = []
        """What the service was asked for and has not answered yet."""
        self._drawn: tuple[object, ...] = ()
        self._was_gone = ""
        feed.wanted = lambda: self._view.needs(board, self._look())
        feed.traced = lambda: self._view.traces(board, self._look())

    def compose(self) -> ComposeResult:
        """Head, views, cards, what is looked at, what is waited for, keys."""
        yield Page(id="head")
        yield Page(id="tabs")
        yield Page(id="cards")
        yield Page(id="body")
        yield Page(id="notice")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Begin."""
        self._feeding = asyncio.ensure_future(self._feed.run())
        self._feeding.add_done_callback(self._feed_ended)
        self.set_interval(REFRESH, self._tick)
        self.call_after_refresh(self._draw)

    async def on_unmount(self) -> None:
        """Hang up."""
        self._feeding.cancel()
        await asyncio.wait({self._feeding})
        await self._feed.close()

    def on_resize(self) -> None:
        """Another size."""
        self.call_after_refresh(self._draw)

    def _feed_ended(self, feeding: "asyncio.Future[None]") -> None:
        """It never does by itself: a mistake in it must be seen."""
        if not feeding.cancelled() and (mistake := feeding.exception()):
            self.panic(Text(f"{type(mistake).__name__}: {mistake}"))

    # --- Drawing ---

    def _tick(self) -> None:
        self._board.note_figures()
        seen = (self._board.revision, now() // STEP)
        if seen != self._drawn:
            with suppress(NoMatches):  # at the end, pages go before this stops
                self._draw()
            self._drawn = (self._board.revision, seen[1])

    def _look(self) -> Look:
        canvas = Canvas(self.size.width - 1, not self.no_color, self._unicode)  # one column is the scroll bar's
        return Look(canvas, self.console, now(), self._tenant, self._wish)

    def _draw(self) -> None:
        if not self.screen_stack or not self.screen_stack[0].children:  # it has been quit
            return
        board, look = self._board, self._look()
        if board.gone != self._was_gone:
            self._was_gone = board.gone
            self.screen.refresh()  # ssh may have written on it
        self._page("head").show(Content([Line(overview.cut(self._head(), look.canvas.width))]))
        self._page("tabs").show(Content([Line(self._tabs(look.canvas.width))]))
        self._draw_cards(look)
        body = self._page("body")
        content = self._view.draw(board, look)
        body.show(content, self._choose([line.key for line in content.lines if line.key]))
        self._draw_notice(look)

    def _draw_cards(self, look: Look) -> None:
        page = self._page("cards")
        page.display = self._view is VIEWS[0]
        if page.display:
            lines = overview.cards(self._board, look.canvas, look.at)
            page.styles.height = len(lines) + 1
            page.show(Content([*lines, Line(Text())]))

    def _draw_notice(self, look: Look) -> None:
        """What is waited for, and what the table has no room for."""
        lines = [Line(Text(", ".join(self._waiting), LIVELY))] if self._waiting else []
        if self._view is VIEWS[0]:
            lines += overview.whole_reason(self._board, look.canvas, self._tenant, self.console)
        elif self._view.name == "jobs":
            lines += whole_job(self._board, look, self._job)
        page = self._page("notice")
        page.display = bool(lines)
        page.styles.height = max(len(lines), 1)
        page.show(Content(lines))

    def _head(self) -> Text:
        place = f"{safe(self._host)}: " if self._host else ""
        if self._board.gone:
            return Text.assemble(place, (safe(self._board.gone), BAD))
        return Text.assemble(place, head(self._board.status))

    def _tabs(self, width: int) -> Text:
        """The views, with the one that is shown marked, and with their keys."""
        drawn = Text()
        for number, view in enumerate(VIEWS, 1):
            drawn.append(f" {number} {view.title} ", "reverse" if view is self._view else QUIET)
            drawn.append("  " if width >= _NARROW else "")
        return drawn

    def _page(self, name: str) -> Page:
        return self.screen_stack[0].query_one(f"#{name}", Page)

    def _choose(self, keys: list[str]) -> str:
        """What is chosen in this view: what was, or the first."""
        if self._view.name == "overview":
            if self._tenant not in keys:
                self._tenant = keys[0] if keys else ""
            return self._tenant
        if self._view.name == "jobs":
            if self._job not in keys:
                self._job = keys[0] if keys else ""
            return self._job
        return ""

    # --- Looking around ---

    def on_page_chosen(self, chosen: Page.Chosen) -> None:
        """A line was clicked."""
        self._set_chosen(chosen.key)

    def _set_chosen(self, key: str) -> None:
        if self._view.name == "jobs":
            self._job = key
        else:
            self._tenant = key
        self._draw()
        self._page("body").reveal(key)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Whether a key means something here: only then it is shown below, and heard."""
        return self._view.name in _ONLY_IN.get(action, {self._view.name})

    def action_details(self) -> None:
        """Everything about the tenant that is chosen."""
        self.action_view("tenant")

    def action_close(self) -> None:
        """To the overview."""
        self.action_view("overview")

    def action_view(self, name: str) -> None:
        """Look at something else."""
        self._view = next(view for view in VIEWS if view.name == name)
        if name == "tenant" and (path := self._board.path_of_tenant(self._tenant)):
            self._board.outdated.setdefault((path, TENANT))  # its evidence is not signalled
        if name == "engines":
            self._board.warm_plan = None
        self._page("body").scroll_to(y=0, animate=False)
        self.refresh_bindings()
        self._draw()
        self._feed.nudge()

    def action_turn(self, by: int) -> None:
        """The next view, or the one before."""
        self.action_view(VIEWS[(VIEWS.index(self._view) + by) % len(VIEWS)].name)

    def action_move(self, by: int) -> None:
        """Choose the next line, or scroll where none can be chosen."""
        body = self._page("body")
        keys = body.keys
        if keys:
            here = self._job if self._view.name == "jobs" else self._tenant
            place = keys.index(here) + by if here in keys else 0
            self._set_chosen(keys[min(max(place, 0), len(keys) - 1)])
        elif self._view.name == "tenant":
            self._another_tenant(by)
        else:
            body.scroll_relative(y=by, animate=False)

    def _another_tenant(self, by: int) -> None:
        """The next one, in the order of the overview."""
        names = [each["id"] for each in overview.sorted_tenants(self._board.tenants, self._wish)]
        if names:
            place = names.index(self._tenant) + by if self._tenant in names else 0
            self._tenant = names[min(max(place, 0), len(names) - 1)]
            self.action_view("tenant")

    def action_leaf(self, by: int) -> None:
        """A page further, or back."""
        body = self._page("body")
        if body.keys:
            self.action_move(by * max(body.size.height - 2, 1))
        else:
            body.scroll_relative(y=by * body.size.height, animate=False)

    def action_far(self, by: int) -> None:
        """The first line, or the last."""
        body = self._page("body")
        if keys := body.keys:
            self._set_chosen(keys[0 if by < 0 else -1])
        elif by < 0:
            body.scroll_home(animate=False)
        else:
            body.scroll_end(animate=False)

    def action_sort(self) -> None:
        """By the next column."""
        self._wish = Wish(SORTS[(SORTS.index(self._wish.sort) + 1) % len(SORTS)], False, self._wish.absent)
        self._draw()

    def action_reverse(self) -> None:
        """The other way round."""
        self._wish = Wish(self._wish.sort, not self._wish.reverse, self._wish.absent)
        self._draw()

    def action_absent(self) -> None:
        """Show or hide who is not there."""
        self._wish = Wish(self._wish.sort, self._wish.reverse, not self._wish.absent)
        self._draw()

    def action_explain(self) -> None:
        """Help."""
        self.push_screen(Shown("Keys", [HELP]))

    # --- Asking the service ---

    async def _ask(self, meanwhile: str, *call: Any, **where: str) -> Any:  # noqa: ANN401  (a D-Bus value)
        """The answer; None when it failed, which is shown in the service's words."""
        self._waiting.append(meanwhile)
        self._draw()
        try:
            return shapes.known(await self._feed.ask(*call, **where))
        except CommandFailed as failure:
            self.push_screen(Shown("That did not work", [Text(safe_lines(failure), BAD)]))
            return None
        finally:
            self._waiting.remove(meanwhile)
            self._draw()

    def _tenant_or_none(self) -> str:
        """The id of the tenant that is chosen; empty, and told, when none is."""
        if self._board.path_of_tenant(self._tenant):
            return self._tenant
        stranger = self._tenant.startswith(UNMANAGED)
        reason = "This process belongs to no tenant, so it is never touched." if stranger else "There is no tenant."
        self.push_screen(Shown("No tenant to ask", [Text(reason)]))
        return ""

    @work
    async def action_plan(self) -> None:
        """Show what would be released for the tenant that is chosen; nothing is done."""
        if tenant := self._tenant_or_none():
            await self._show_plan(Room(tenant, 0, ""))

    @work
    async def action_release(self) -> None:
        """Ask the tenant that is chosen for its memory, after a yes."""
        tenant = self._tenant_or_none()
        if not tenant:
            return
        shape = next(each for each in self._board.tenants if each["id"] == tenant)
        question = f"Ask {safe(tenant)} for its memory?"
        if not await self.push_screen_wait(Shown("Release", overview.what_it_gives(shape), question)):
            return
        ended = await self._ask(
            f"{safe(tenant)} is asked for its memory", "Release", "s", [tenant], path=f"{ROOT}/tenants",
            interface=TENANTS,
        )  # fmt: skip
        if ended:
            self.push_screen(Shown(f"{safe(tenant)} was asked", result_screen(ended)))

    @work
    async def action_make_room(self) -> None:
        """Ask how much for whom, show the plan, carry it out after a yes."""
        tenant = self._tenant if self._board.path_of_tenant(self._tenant) else ""
        cards = [(f"{safe(gpu['name'])} {safe(gpu['pci_bus_id'])}", str(gpu["uuid"])) for gpu in self._board.gpus]
        room = await self.push_screen_wait(RoomForm(safe(tenant), cards))
        if room and await self._show_plan(room, "Carry it out?"):
            ended = await self._ask("room is being made", "MakeRoom", "sst", [room.gpu, room.tenant, room.size])
            if ended:
                self.push_screen(Shown("Room was made", result_screen(ended)))

    async def _show_plan(self, room: Room, question: str = "") -> bool:
        plan = await self._ask("planning", "PlanRelease", "sst", [room.gpu, room.tenant, room.size])
        if plan is None:
            return False
        wanted = question if plan["sufficient"] and plan["steps"] else ""
        title = f"Plan for {safe(room.tenant)}" if room.tenant else "Plan"
        shown = Shown(f"{title}: nothing is done yet", plan_screen(plan), wanted)
        return await self.push_screen_wait(shown)

    @work
    async def action_cancel_job(self) -> None:
        """Ask the job that is chosen to end, after a yes."""
        job = shape_of_job(self._board, self._job)
        if job is None or job["state"] != "running":
            self.push_screen(Shown("No job to cancel", [Text("Choose one that is running.")]))
            return
        what = text(f"{job['kind']}, {job['target']}: {job['detail']}")
        if await self.push_screen_wait(Shown(f"Job {job['id']}", [what], "Cancel it?")):
            await self._ask(
                f"job {job['id']} is cancelled", "Cancel", path=f"{ROOT}/jobs/{job['id']}",
                interface=JOB,
            )  # fmt: skip
