"""The list of all self-checks, in the order in which they are shown."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpusupervisor.health.attribution import check_attribution, check_processes
from gpusupervisor.health.configuration import check_configuration, check_declarations, check_hints
from gpusupervisor.health.driver import check_driver, check_gpus
from gpusupervisor.health.engine_apis import check_apis
from gpusupervisor.health.engine_checks import check_engines
from gpusupervisor.health.facts import Facts
from gpusupervisor.health.hardware import check_drift, check_fans, check_persistence
from gpusupervisor.health.memory import check_desktop, check_unattributed, check_unmanaged
from gpusupervisor.health.model_checks import check_models
from gpusupervisor.health.model_files import check_model_directories, check_residency
from gpusupervisor.health.power import check_sleep
from gpusupervisor.health.privileged import check_polkit, check_reader
from gpusupervisor.health.telemetry import check_telemetry
from gpusupervisor.health.tenants import check_tenants
from gpusupervisor.health.versions import check_versions
from gpusupervisor.state import Check


@dataclass(frozen=True, slots=True)
class SelfCheckItem:
    """One self-check."""

    name: str
    """The id of its check, or how the ids of several begin."""
    look: Callable[[Facts], Iterable[Check]]
    """Pure; at every tick, so cheap."""
    quiet: Check | None = None
    """What is shown when it has found nothing to say; None for one that always says something."""


def _ok(name: str, summary: str) -> Check:
    return Check(name, "ok", summary)


def _skipped(name: str, summary: str) -> Check:
    return Check(name, "skipped", summary)


CHECKS = (
    SelfCheckItem("driver", lambda facts: (check_driver(facts.sample),)),
    SelfCheckItem("gpus", lambda facts: check_gpus(facts.sample)),
    SelfCheckItem("attribution", lambda facts: check_attribution(facts.sample)),
    SelfCheckItem("processes", lambda facts: (check_processes(facts),)),
    SelfCheckItem("configuration", lambda facts: check_configuration(facts.problems, facts.refused)),
    SelfCheckItem("configuration-hints", lambda facts: check_hints(facts.hints)),
    SelfCheckItem(
        "declarations",
        lambda facts: check_declarations(facts.declaration_problems, facts.users_declaration_problems),
        _ok("declarations", "all declarations in units are valid"),
    ),
    SelfCheckItem(
        "tenants",
        check_tenants,
        _ok("tenants", "no tenant is stuck, orphaned, keeps its memory when asked, or is reloaded right after"),
    ),
    SelfCheckItem("apis", check_apis, _skipped("apis", "no engine with an API is running")),
    SelfCheckItem(
        "engines",
        lambda facts: check_engines(facts.engines, facts.sight),
        _skipped("engines", "no engine whose settings are known is running"),
    ),
    SelfCheckItem(
        "versions",
        lambda facts: check_versions(facts.engines),
        _ok("versions", "no engine has a version with known problems"),
    ),
    SelfCheckItem(
        "models",
        lambda facts: check_models(facts.engines),
        _ok("models", "no model is partly in system memory for lack of VRAM"),
    ),
    SelfCheckItem("unmanaged", check_unmanaged, _skipped("unmanaged", "no GPU can be read at the moment")),
    SelfCheckItem("unattributed", check_unattributed, _skipped("unattributed", "no GPU can be read at the moment")),
    SelfCheckItem("desktop", check_desktop, _skipped("desktop", "no desktop holds memory")),
    SelfCheckItem("telemetry", lambda facts: (check_telemetry(facts.telemetry),)),
    SelfCheckItem("residency", lambda facts: (check_residency(facts.residencies),)),
    SelfCheckItem(
        "model-directories",
        lambda facts: check_model_directories(facts.residencies, facts.engines),
        _skipped("model-directories", "the reader knows no directory of models"),
    ),
    SelfCheckItem("reader", lambda facts: (check_reader(facts.sight, facts.census),)),
    SelfCheckItem("polkit", lambda facts: (check_polkit(facts.surroundings.polkit),)),
    SelfCheckItem("fans", lambda facts: check_fans(facts.controls), _skipped("fans", "no fan is controlled")),
    SelfCheckItem("drift", lambda facts: check_drift(facts.controls), _skipped("drift", "no profile is set")),
    SelfCheckItem(
        "persistence", check_persistence, _skipped("persistence", "no GPU tells whether persistence mode is on")
    ),
    SelfCheckItem("sleep", check_sleep, _skipped("sleep", "no GPU has runtime power management enabled")),
)
"""Every check there is."""
