"""The one screen, at the widths people have, for every kind of machine."""

import os
from pathlib import Path

import pytest
from rich.cells import cell_len

from gpusupervisor.cli.screens.memory import WIDEST, bar, keys, shares
from gpusupervisor.cli.screens.status import screen
from gpusupervisor.cli.shapes import Shape
from gpusupervisor.cli.terminal import Canvas
from tests.cli.screens import NASTY, drawn, is_harmless
from tests.cli.shapes_of import EIGHT, FORTY, GIB, NO_DRIVER, SCRIPTS, STARVED, gpu, health, job, status, tenant

GOLDEN = Path(__file__).parent / "golden"
SCENES = {"starved": STARVED, "no-driver": NO_DRIVER, "eight": EIGHT, "forty": FORTY, "scripts": SCRIPTS}


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


def shown(shape: Shape, width: int = 80, *, colours: bool = False, unicode: bool = True) -> str:
    return drawn(screen(shape, Canvas(width, colours, unicode)), width, colours=colours)


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("scene", SCENES)
def test_the_screen_is_as_it_was_when_it_was_looked_at(scene: str, width: int) -> None:
    """GOLDEN=write draws them anew; look at what has changed."""
    text = shown(SCENES[scene], width) + "\n"
    file = GOLDEN / f"status-{scene}-{width}.txt"
    if os.environ.get("GOLDEN") == "write":
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("width", [80, 100, 132, 200])
@pytest.mark.parametrize("scene", SCENES)
def test_no_line_is_wider_than_the_terminal(scene: str, width: int) -> None:
    for colours in (False, True):
        for line in screen_lines(SCENES[scene], width, colours):
            assert cell_len(line) <= width


def screen_lines(shape: Shape, width: int, colours: bool) -> list[str]:
    """The same text as with colours, without the codes."""
    return drawn(screen(shape, Canvas(width, colours, unicode=True)), width).splitlines()


def test_without_colours_each_holder_has_a_letter_and_the_bar_is_made_of_them() -> None:
    lines = shown(STARVED).splitlines()
    assert lines[3].startswith("AAAA")
    assert "A  ollama" in lines[4]
    assert any(line.startswith("B  comfyui") for line in lines)
    assert "needs 14.0 GiB, 4.0 GiB missing" in " ".join(shown(STARVED).split())
    assert lines[3].count("A") > 2 * lines[3].count("B") > 0


def test_with_colours_the_same_holder_has_the_same_colour_on_every_card() -> None:
    cards = [gpu(1, tenant_holdings={"a": GIB, "b": 2 * GIB}), gpu(2, tenant_holdings={"a": 3 * GIB})]
    of = keys(cards, Canvas(80, colours=True, unicode=True))
    assert of["a", 0] != of["b", 0]
    assert str(bar(cards[1], of, Canvas(80, colours=True, unicode=True)).spans[0].style) == of["a", 0][1]


def test_where_only_ascii_is_shown_nothing_else_is_drawn() -> None:
    assert shown(STARVED, unicode=False).isascii()


def test_a_healthy_machine_says_so_in_the_first_line() -> None:
    assert shown(status([], [])) == "gpusupervisor 0.1.0, automatic, driver 580.95.05, healthy"


def test_before_the_first_look_the_first_line_says_why_nothing_is_known() -> None:
    told = health(state="degraded", summary="nothing has been checked yet")
    assert "nothing has been checked yet" in shown(status([], [], health=told))


@pytest.mark.parametrize("state", ["asleep", "lost", "failing"])
def test_a_card_that_cannot_be_read_shows_its_state_and_no_numbers(state: str) -> None:
    card = gpu(state=state, state_detail="because", memory_total=None, memory_used=None, memory_free=None)
    assert shown(status([card], [])).splitlines()[2] == f"NVIDIA GeForce RTX 4090  {state}, because"


def test_sizes_that_nobody_knows_are_question_marks_and_never_eighteen_exabytes() -> None:
    stranger = {"pid": 1, "name": "x", "gpu": "GPU-1", "used": None}
    card = gpu(unmanaged=[stranger], unattributed=None, tenant_holdings={"ollama": GIB})
    text = shown(status([card], [tenant(holding=GIB, holdings_incomplete=True)]))
    assert ">= 1.0 GiB" in text
    assert "?  unmanaged" in text
    assert "EiB" not in text
    assert "unattributed" not in text


def test_a_tenant_of_the_bar_that_is_not_described_any_more_is_shown_by_name() -> None:
    assert "A  gone" in shown(status([gpu(tenant_holdings={"gone": GIB})], []))


def test_nothing_that_others_named_can_steer_the_terminal() -> None:
    stranger = {"pid": 1, "name": NASTY, "gpu": "GPU-1", "used": GIB}
    cards = [
        gpu(name=NASTY, tenant_holdings={NASTY: GIB}, unmanaged=[stranger], attribution_problem=NASTY, plan=NASTY,
            reservations=[{"tenant": NASTY, "size": 1, "expires_at": None}]),
        gpu(2, name=NASTY, state="lost", state_detail=NASTY, pci_bus_id=NASTY),
    ]  # fmt: skip
    named = tenant(NASTY, activity_reason=NASTY, starved=True, starved_reason=NASTY)
    idle = tenant(f"{NASTY}2", holding=0, activity_reason=NASTY)
    shape = status(
        cards, [named, idle], version=NASTY, driver_version=NASTY, jobs=[job(kind=NASTY, detail=NASTY)],
        health=health(("x", "failed", NASTY, NASTY), state="failed", summary=NASTY),
    )  # fmt: skip
    assert is_harmless(shown(shape))


@pytest.mark.parametrize(
    ("sizes", "dealt"),
    [([], []), ([0, 0], [0, 0]), ([1, 1], [5, 5]), ([12, 12], [5, 5]), ([1000, 1], [9, 1]), ([1] * 12, None)],
)
def test_columns_are_dealt_by_size_and_nobody_small_is_lost(sizes: list[int], dealt: list[int] | None) -> None:
    found = shares(sizes, 10)
    assert dealt is None or found == dealt
    assert sum(found) == (10 if any(sizes) else 0)


def test_the_bar_is_never_wider_than_makes_sense() -> None:
    canvas = Canvas(10_000, colours=False, unicode=True)
    assert len(bar(STARVED["gpus"][0], keys(STARVED["gpus"], canvas), canvas).plain) == WIDEST
