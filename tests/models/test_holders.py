"""A model that is listed as loaded and that no process holds is pointed out."""

from dataclasses import replace

import pytest

from gpusupervisor.models.holders import not_held
from gpusupervisor.models.model import Model
from gpusupervisor.tenants.catalog import SHIPPED, load_catalog
from gpusupervisor.tenants.census import Census
from gpusupervisor.tenants.recognizer import Recognizer
from gpusupervisor.tenants.take_census import take_census
from tests.tenants.people import GIB, gpu, sample, who

CATALOG = load_catalog([SHIPPED])
LISTED = Model("a", "loaded", held=8 * GIB)


def census(held: dict[int, int | None] | None = None, *, servers: tuple[int, ...] = (7,)) -> Census:
    identities = {7: who(7, "/usr/bin/ollama serve", executable="/usr/bin/ollama")}
    return take_census(sample(gpu(processes=held or {})), identities, CATALOG, Recognizer(), servers)


def test_a_model_whose_runner_was_killed_is_named() -> None:
    said = not_held([LISTED, Model("b", "not-loaded")], "ollama", census())
    assert said == "it lists a as loaded, but no process of it holds VRAM: the next request loads it anew"


@pytest.mark.parametrize(
    "model", [Model("a", "loaded", held=0), Model("a", "loaded"), Model("a"), replace(LISTED, remote=True)]
)
def test_a_model_that_claims_no_vram_is_not(model: Model) -> None:
    assert not_held([model], "ollama", census()) == ""


def test_nothing_is_said_where_it_is_held_or_where_that_cannot_be_known() -> None:
    unread = replace(gpu(), memory=None)
    for known in (
        census({7: 8 * GIB}),
        census({7: None}),
        census(servers=()),
        Census(census().tenants, {}),
        take_census(sample(unread), {7: who(7, executable="/usr/bin/ollama")}, CATALOG, Recognizer(), (7,)),
    ):
        assert not_held([LISTED], "ollama", known) == ""
