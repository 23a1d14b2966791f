"""What is proposed for what was found. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpusupervisor.cli.setup.applications import Way, matches, name_for, way_to
from gpusupervisor.cli.setup.findings import Findings, Process, Tenant, Unit
from gpusupervisor.cli.setup.front import Front
from gpusupervisor.cli.setup.model_folders import covers, folder_of
from gpusupervisor.cli.setup.toml_text import Change, comment, extended, quoted, written
from gpusupervisor.cli.text import safe
from gpusupervisor.quantities import format_bytes

MIB = 1 << 20
WORTHWHILE = 256 * MIB
"""Bytes below which a process that nobody knows is only named."""
STEADY = frozenset({"vllm", "sglang", "llama.cpp", "koboldcpp", "tabbyapi", "whisper.cpp"})
"""Engines that take all they need when they load: what they hold is what they need."""
_LONGEST_TITLE = 64
_URL = ("endpoint", "url")


@dataclass(frozen=True, slots=True)
class Proposal:
    """A tenant file to write or to extend."""

    tenant: str
    reasons: tuple[str, ...]
    """A sentence for everything that was found."""
    changes: tuple[Change, ...] = ()
    """What the file is to say beside what it says already."""
    new: str = ""
    """The whole file, for a tenant that is not described yet: it extends nothing."""

    def text(self, before: str | None) -> str:
        """The file as it will be. before: as it is, None for no file. Raises CannotExtend."""
        return self.new or extended(before or "", self.changes)


@dataclass(frozen=True, slots=True)
class Advice:
    """All that is proposed, and what a person should know beside it."""

    proposals: tuple[Proposal, ...]
    hints: tuple[str, ...]
    fronts: tuple[Front, ...] = ()
    """Proxies to put in front of units."""


def advise(findings: Findings, fronts: tuple[Front, ...] = ()) -> Advice:
    """Proposals and hints, the same for the same findings; none for what is in force already."""
    proposals: list[Proposal] = []
    hints: list[str] = list(findings.notes)
    for tenant in findings.tenants.values():
        changes = _changes(tenant, [unit for unit in findings.units if unit.tenant == tenant.id])
        if changes:
            proposals.append(Proposal(tenant.id, tuple(each.reason for each in changes), changes))
        if not any(each.path == _URL for each in changes):
            hints += _unreachable(tenant, findings.units)
    for application, way in _applications(findings):
        if way is None:
            hints.append(_cannot_be_told_apart(application))
        else:
            taken = findings.names | {each.tenant for each in proposals}
            proposals.append(_new_tenant(application, way, name_for(way, taken)))
    moving = {each.tenant for each in proposals if any(change.path == _URL for change in each.changes)}
    return Advice(tuple(proposals), tuple(hints), tuple(each for each in fronts if each.tenant not in moving))


def _changes(tenant: Tenant, units: Iterable[Unit]) -> tuple[Change, ...]:
    """What its file lacks; of several units of one tenant the first that says something is heard."""
    found: dict[tuple[str, ...], Change] = {}
    for change in (*_need(tenant), *(each for unit in units for each in _of_unit(unit, tenant))):
        found.setdefault(change.path, change)
    return tuple(found.values())


def _of_unit(unit: Unit, tenant: Tenant) -> Iterator[Change]:
    yield from _address(unit, tenant)
    yield from _models(unit, tenant)


def _address(unit: Unit, tenant: Tenant) -> Iterator[Change]:
    """It listens elsewhere than its file says, and is not found there by itself."""
    is_found = tenant.reachable and unit.endpoint == tenant.endpoint
    if not unit.runs or not unit.endpoint or unit.endpoint == tenant.url or is_found:
        return
    if tenant.is_asked_at_rest or (tenant.holding and not tenant.reachable and unit.endpoint != tenant.endpoint):
        yield Change(
            _URL, unit.endpoint, f"{safe(unit.place)} listens at {safe(unit.endpoint)}, not {safe(tenant.url)}"
        )


def _models(unit: Unit, tenant: Tenant) -> Iterator[Change]:
    """Its models are elsewhere than its file says."""
    known = tenant.definition.get("models", {}).get("directories", [])
    folder, setting = folder_of(tenant.engine, unit.command_line, unit.environment)
    if folder and not covers(known, folder):
        reason = f"{safe(unit.place)} has its models in {safe(folder)} ({safe(setting)})"
        yield Change(("models", "directories"), [folder], reason)


def _need(tenant: Tenant) -> Iterator[Change]:
    """An engine whose need nobody knows is never made room for."""
    if not tenant.engine or tenant.protected or "needs-vram" in tenant.definition or tenant.need is not None:
        return
    is_telling = tenant.engine in STEADY or tenant.activity == "busy"
    if is_telling and tenant.holding_is_known and tenant.holding >= WORTHWHILE:
        need = -(-tenant.holding // (256 * MIB)) * 256
        text = f"{need // 1024}G" if need % 1024 == 0 else f"{need}M"
        reason = f"it held {format_bytes(tenant.holding)}, and nothing said what it needs; raise this if it needs more"
        yield Change(("needs-vram",), text, reason)


def _unreachable(tenant: Tenant, units: Iterable[Unit]) -> Iterator[str]:
    """An engine that is there and does not answer, where nothing can be proposed."""
    running = [unit for unit in units if unit.tenant == tenant.id and unit.runs]
    if not tenant.endpoint or tenant.reachable or not (tenant.holding or running):
        return
    places = []
    if ports := sorted({port for process in tenant.processes for port in process.ports}):
        places.append(f"its processes listen on {', '.join(map(str, ports))}")
    if files := sorted({file for unit in running for file in unit.unreadable}):
        places.append(f"its address may be set in {', '.join(files)}")
    why = safe(tenant.detail) or "it does not answer"
    more = f" ({'; '.join(safe(each) for each in places)})" if places else ""
    yield (
        f"{safe(tenant.id)} cannot be reached at {safe(tenant.endpoint)}: {why}{more}."
        f" If it is elsewhere, set url in [endpoint] with: gpusupervisorctl edit {safe(tenant.id)}"
    )


def _applications(findings: Findings) -> Iterator[tuple[Process, Way | None]]:
    """One process of each application that nobody knows and that holds enough to matter."""
    known = [process for tenant in findings.tenants.values() for process in tenant.processes]
    everybody = [*findings.strangers, *known]
    seen: list[Way] = []
    for process in sorted(findings.strangers, key=lambda each: each.pid):
        if process.used is not None and process.used < WORTHWHILE:
            continue
        if any(matches(way, process) for way in seen):
            continue
        way = way_to(process, everybody)
        seen += [way] if way else []
        yield process, way


def _cannot_be_told_apart(process: Process) -> str:
    name = safe(process.name) or "a process"
    return (
        f"{name} (pid {process.pid}) holds {_held(process)}, and there is nothing by which to recognise it next time."
        " Run it as a unit, for example with: systemd-run --user --unit=NAME COMMAND"
    )


def _held(process: Process) -> str:
    return "VRAM" if process.used is None else f"{format_bytes(process.used)} of VRAM"


def _new_tenant(process: Process, way: Way, name: str) -> Proposal:
    """A tenant that counts and is watched, and is never asked: nothing is known of how."""
    about = safe(process.name)
    title = safe(way.name)[:_LONGEST_TITLE].strip() if name == name_for(way, frozenset()) else name
    text = f"""\
{comment(f"{about} held {_held(process)} and belonged to no tenant.")}
title = {quoted(title or name)}
# To have room made for it, say what it needs, as in: needs-vram = "8G"

[match]
{way.key} = {written(way.patterns)}

# It counts as busy while its processes work. It is not asked for its memory
# until [[release]] says how: see gpusupervisor-tenant(5).
[activity]
probes = [{{ kind = "sm-utilization" }}, {{ kind = "cpu" }}, {{ kind = "vram" }}]
"""
    reason = f"{about} (pid {process.pid}) holds {_held(process)} and belongs to no tenant"
    return Proposal(name, (reason,), new=text)
