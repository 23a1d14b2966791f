"""Engines: whether their APIs answer, and whether their versions are known to misbehave."""

from dataclasses import replace
from typing import Any, get_args

import pytest

from gpusupervisor.engine_http import KeyFile
from gpusupervisor.engines.setting import Setting
from gpusupervisor.health.engine_apis import SILENT_FOR, check_apis
from gpusupervisor.health.versions import KNOWN, check_versions
from gpusupervisor.state import Check
from gpusupervisor.tenants.activity.verdict import Trouble
from tests.arbitration.seen import doing, process
from tests.health.builders import complains, engine, facts

TROUBLES = [trouble for trouble in get_args(Trouble) if trouble]


def apis(trouble: str, lasted: int, held: float = 8, **more: Any) -> dict[str, Check]:
    activity = doing("unknown", trouble=trouble, trouble_detail="its API answered nonsense")
    holders = (process(7, held, "ollama"),) if held else ()
    return {
        check.id: check
        for check in check_apis(
            facts(
                *holders,
                tenants={"ollama": activity},
                engines={"ollama": engine(**more)},
                lasted={("api", "ollama"): lasted},
            )
        )
    }


def test_an_api_that_answers_is_well() -> None:
    assert apis("", 0)["api-ollama"].state == "ok"


def test_an_api_that_has_not_answered_is_not_said_to_answer() -> None:
    """LM Studio holds memory, no probe asks it, and nothing listens."""
    check = apis("", 0, reachable=False)["api-ollama"]
    assert (check.state, check.summary) == ("skipped", "the API of ollama has not answered yet")


@pytest.mark.parametrize("trouble", TROUBLES)
def test_an_api_that_does_not_answer_as_it_should_is_told_once_that_lasts(trouble: str) -> None:
    assert apis(trouble, SILENT_FOR - 1)["api-ollama"].state == "ok"
    check = apis(trouble, SILENT_FOR)["api-ollama"]
    assert complains(check)
    assert check.summary == "ollama: its API answered nonsense"


def test_an_engine_that_does_not_run_has_no_such_check() -> None:
    assert apis("unreachable", SILENT_FOR, held=0) == {}


def test_a_server_that_runs_without_vram_has_one() -> None:
    settings = (Setting("OLLAMA_HOST", "127.0.0.1", "environment", ""),)
    assert apis("unreachable", SILENT_FOR, held=0, settings=settings)["api-ollama"].state == "degraded"


@pytest.mark.parametrize(
    ("name", "version", "bad"),
    [
        ("ollama", "0.1.30", True),
        ("ollama", "0.3.10", True),
        ("ollama", "0.3.11", False),
        ("ollama", "0.33.0-rc2", False),
        ("vllm", "0.13.0", False),
        ("vllm", "0.15.1", True),
        ("vllm", "0.16.0", False),
        ("ollama", "", False),
        ("ollama", "main\x1b[31m", False),
        ("comfyui", "0.1.30", False),
    ],
)
def test_versions_that_are_known_to_misbehave_are_told(name: str, version: str, bad: bool) -> None:
    checks = list(check_versions({"mine": engine(name, id="mine", version=version)}))
    assert len(checks) == bad
    for check in checks:
        assert check.id == "version-mine"
        assert complains(check)
        assert version in check.summary


def test_every_known_trouble_has_its_source() -> None:
    assert all(trouble.source and trouble.impact and trouble.what for trouble in KNOWN)


def test_an_orphan_is_one_finding_and_not_also_an_api_that_does_not_answer() -> None:
    orphan = replace(process(7, 9, "vllm"), orphan=True)
    silent = doing("unknown", trouble="unreachable", trouble_detail="nothing listens")
    what = facts(orphan, tenants={"vllm": silent}, engines={"vllm": engine()}, lasted={("api", "vllm"): SILENT_FOR})
    assert list(check_apis(what)) == []


def test_a_stranger_who_waits_for_a_key_is_named_though_the_engine_is_down() -> None:
    strange = doing("unknown", trouble="foreign-socket", trouble_detail="that socket belongs to user mallory")
    what = facts(tenants={"vllm": strange}, engines={"vllm": engine()}, lasted={("api", "vllm"): SILENT_FOR})
    assert list(check_apis(what)) == []
    key = (("Authorization", KeyFile("/etc/gpusupervisor/keys/vllm")),)
    presence = replace(what.census.tenants["vllm"], headers=key)
    waiting = replace(what, census=replace(what.census, tenants={"vllm": presence}))
    (check,) = check_apis(waiting)
    assert complains(check)
    assert "mallory" in check.summary
