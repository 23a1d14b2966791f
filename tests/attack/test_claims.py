"""Words are cheap: who only answers at a port, looks like an engine, or declares a need gets no room made for it."""

from dataclasses import replace

import pytest

from gpusupervisor.arbitration.assess import assess_tenant
from gpusupervisor.arbitration.compose import Seen
from gpusupervisor.arbitration.situation import Assessment
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.tenants.activity.verdict import Placement
from tests.arbitration.builders import CARD, GIB
from tests.arbitration.seen import definition, doing, process, seen
from tests.arbitration.test_compose import composed
from tests.processes.builders import process as identity

NEED = 23 * GIB
BUSY = doing("busy")
LOOK_ALIKE = identity(7, uid=1000, cgroup="/user.slice/user-1000.slice/session-3.scope", unit="session-3.scope")
SERVICE = identity(8, uid=998, cgroup="/system.slice/comfyui.service", unit="comfyui.service")


def assessed(what: Seen, *servers: ProcessIdentity) -> Assessment:
    """The verdict on "app", of which these are the servers."""
    presence = replace(what.census.tenants["app"], servers=servers)
    census = replace(what.census, tenants={**what.census.tenants, "app": presence})
    situation = composed(replace(what, census=census))
    return assess_tenant(situation, situation.tenants["app"])


def claiming(*processes: object, need: int | None = NEED) -> Seen:
    """A tenant whose API says that it works, while another one holds the card."""
    other = process(99, 20, "ollama")
    described = {"app": definition("app", needs_vram=need), "ollama": definition("ollama")}
    return seen(other, *processes, tenants={"app": BUSY, "ollama": doing("idle")}, definitions=described)  # type: ignore[arg-type]


def test_who_answers_at_a_port_without_a_process_gets_nothing() -> None:
    verdict = assessed(claiming())
    assert not verdict.starved
    assert verdict.reason == "busy, but no process of it is known: no room is made on the word of an address"


def test_a_users_program_that_looks_like_the_engine_gets_nothing_before_it_opens_the_gpu() -> None:
    verdict = assessed(claiming(), LOOK_ALIKE)
    assert not verdict.starved
    assert "it has not opened the GPU" in verdict.reason
    assert assessed(claiming(), replace(LOOK_ALIKE, has_opened_gpu=True)).starved


def test_who_holds_the_card_or_is_roots_own_service_may_claim() -> None:
    assert assessed(claiming(process(7, 0.5, "app"))).starved
    assert assessed(claiming(), SERVICE).starved


@pytest.mark.parametrize("kind", ["orphan", "unknown"])
def test_an_orphan_or_a_process_that_cannot_be_seen_vouches_for_nothing(kind: str) -> None:
    holder = process(7, 0.5, "app")
    holder = replace(holder, orphan=True) if kind == "orphan" else replace(holder, identity=None)
    assert not assessed(claiming(holder)).starved


def test_what_a_users_unit_asks_for_only_limits_what_is_measured() -> None:
    wants_all = definition("app", needs_at_most=NEED)
    holder = process(7, 1, "app")
    without = seen(process(99, 20, "ollama"), holder, tenants={"app": BUSY}, definitions={"app": wants_all})
    assert not assessed(without).starved

    spilled = doing("busy", placement=Placement(wanted=12 * GIB, placed=GIB))
    modest = {"app": definition("app", needs_at_most=4 * GIB)}
    limited = seen(process(99, 20, "ollama"), holder, tenants={"app": spilled}, definitions=modest)
    situation = composed(limited)
    need = situation.tenants["app"].need
    assert need is not None
    assert need.low == need.high == 4 * GIB
    assert situation.tenants["app"].holdings == {CARD: GIB}
