"""The gallery: a screen is run on a terminal, and drawn so that every character is as wide as it is there."""

from pathlib import Path

from gpusupervisor.bus.service import BusService
from tests.bus.conftest import PrivateBus
from tests.cli.gallery import Gallery, drawn, theme
from tests.cli.worlds import worlds


async def test_a_page_is_written_for_each_background(bus: PrivateBus, service: BusService, tmp_path: Path) -> None:
    gallery = Gallery(tmp_path, bus)
    service.publish(worlds()["scripts"])
    gallery.write("scripts", 80, [await gallery.shot("status", 80)])
    pages = {page.name: page.read_text() for page in tmp_path.glob("*.html")}
    assert pages.keys() == {"scripts-80-dark.html", "scripts-80-light.html"}
    assert all("status  [0]" in page and "日本語サーバー" in page for page in pages.values())


def test_wide_letters_take_two_columns_and_marks_none() -> None:
    page = drawn("a日本 \x1b[31me\u0301\x1b[0m", 80, theme("dark"))
    assert '<i style="width:5ch">a日本</i>' in page
    assert '<i style="width:1ch">e\u0301</i>' in page


def test_what_was_erased_is_not_drawn() -> None:
    assert ">done<" in drawn("| waiting\r\n\x1b[?25h\r\x1b[1A\x1b[2Kdone", 80, theme("dark"))
    assert "waiting" not in drawn("| waiting\r\n\x1b[?25h\r\x1b[1A\x1b[2Kdone", 80, theme("dark"))
