"""Checks of VRAM that nobody can ask for: unmanaged, nobody's, or the desktop's, and what that costs."""

from collections.abc import Iterable, Iterator

from gpusupervisor.arbitration.situation import GpuSituation
from gpusupervisor.arbitration.worthwhile import WORTHWHILE
from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.foreign_text import harmless
from gpusupervisor.health.facts import Facts
from gpusupervisor.quantities import format_bytes, format_duration
from gpusupervisor.state import Check
from gpusupervisor.tenants.census import Holder

MUCH = 1 << 30
"""Bytes of unmanaged memory, or of memory that is nobody's, from which on it is told."""
BACK = (7, 8)
"""What was too much is well again below this part of the threshold."""
LASTING = 60 * MICROSECONDS
"""What comes and goes within this is nobody's trouble."""
DESKTOP = "desktop"
"""The shipped tenant that draws the screen."""
NAMED = 4


def check_unmanaged(facts: Facts) -> Iterable[Check]:
    """Processes that match no tenant hold little."""
    for gpu in facts.situation.gpus.values():
        name = f"unmanaged-{gpu.uuid}"
        held = facts.steady.get(("unmanaged", gpu.uuid), 0)
        if _too_much(facts, name, held, MUCH) and facts.lasted("unmanaged", gpu.uuid) >= LASTING:
            who = sorted(facts.census.gpus[gpu.uuid].unmanaged, key=lambda each: -(each.used or 0))
            yield Check(
                name,
                "degraded",
                f"{format_bytes(held)} of {gpu.name} is held by processes that match no tenant: {_named(facts, who)}",
                _cost(facts, gpu, held),
                _about_strangers(gpu),
            )
        else:
            yield Check(name, "ok", f"processes that match no tenant hold little of {gpu.name}")


def _about_strangers(gpu: GpuSituation) -> str:
    """What can be done about processes without a tenant: nobody describes games and the desktop's programs."""
    if all(each.kind != "program" for each in gpu.unmanaged):
        return "close the games, windows and videos that hold it when they are no longer needed"
    return (
        "end them if they are no longer needed, or describe them in a tenant file so that they can be asked: "
        "see gpusupervisorctl edit"
    )


NOBODY_LISTED = (
    "look for virtual machines and containers that use the GPU, and for processes that hang while exiting "
    "(state D in ps); if there are none, stop all GPU programs and reload the driver, or reboot"
)
PAGES_STAY = (
    "Linux manages this GPU's memory as a NUMA node, where files and programs can lie and pages stay after a process "
    "has ended: look at numactl --hardware and numastat, and drop what is cached of files with "
    "sync; echo 1 > /proc/sys/vm/drop_caches"
)


def check_unattributed(facts: Facts) -> Iterable[Check]:
    """All memory that is used is used by somebody."""
    coherent = {gpu.identity.uuid for gpu in facts.sample.gpus if gpu.identity.coherent}
    for gpu in facts.situation.gpus.values():
        name = f"unattributed-{gpu.uuid}"
        held = facts.steady.get(("unattributed", gpu.uuid), 0)
        if gpu.attribution_problem:
            yield Check(name, "skipped", f"it is unknown who holds the memory of {gpu.name}")
        elif _too_much(facts, name, held, MUCH) and (
            gpu.dead_pids or facts.lasted("unattributed", gpu.uuid) >= LASTING
        ):
            pids = ", ".join(map(str, gpu.dead_pids))
            by = f"no living process (pid {pids} has ended)" if pids else "no process that the driver lists"
            yield Check(
                name,
                "degraded",
                f"{format_bytes(held)} of {gpu.name} is in use but held by {by}",
                _cost(facts, gpu, held),
                PAGES_STAY if gpu.uuid in coherent else NOBODY_LISTED,
            )
        else:
            yield Check(name, "ok", _mostly_known(gpu))


def _mostly_known(gpu: GpuSituation) -> str:
    """The summary where nothing is wrong, with what belongs to no process all the same."""
    if gpu.unattributed >= WORTHWHILE:
        limit = f"{format_bytes(MUCH)} for {format_duration(LASTING)}"
        return f"{format_bytes(gpu.unattributed)} of {gpu.name} belongs to no known process, tolerated up to {limit}"
    return f"all memory in use on {gpu.name} belongs to known processes"


def check_desktop(facts: Facts) -> Iterable[Check]:
    """The desktop holds no more than the setting `large-desktop` says is usual."""
    presences = [each for each in facts.census.tenants.values() if each.definition_id == DESKTOP]
    usual = facts.settings.large_desktop
    for gpu in facts.situation.gpus.values():
        name = f"desktop-{gpu.uuid}"
        holders = [each for presence in presences for each in presence.holders if each.gpu == gpu.uuid]
        held = facts.steady.get(("desktop", gpu.uuid), 0)
        if _too_much(facts, name, held, usual) and facts.lasted("desktop", gpu.uuid) >= LASTING:
            holders.sort(key=lambda each: -(each.used or 0))
            yield Check(
                name,
                "degraded",
                f"the desktop holds {format_bytes(held)} of {gpu.name}, more than {format_bytes(usual)}: "
                f"mostly {_named(facts, holders)}",
                _cost(facts, gpu, held),
                "close windows and browser tabs, or restart the programs that have grown; if that much is normal here, "
                "raise large-desktop in /etc/gpusupervisor/gpusupervisor.toml",
            )
        elif holders:
            yield Check(name, "ok", f"the desktop holds no more of {gpu.name} than usual")


def _too_much(facts: Facts, check: str, held: int, threshold: int) -> bool:
    """Above the threshold, or not far enough below it again."""
    part, of = BACK
    return held >= (threshold * part // of if check in facts.bad else threshold)


def _named(facts: Facts, holders: list[Holder]) -> str:
    """Who, how much each, and for how long in a word that changes seldom."""
    named = [_who(facts, holder) for holder in holders[:NAMED]]
    more = len(holders) - len(named)
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def _who(facts: Facts, holder: Holder) -> str:
    name = harmless(holder.identity.name, 32) if holder.identity else "?"
    key = ("held", holder.gpu, str(holder.pid))
    size = facts.steady.get(key)
    parts = [f"PID {holder.pid}", format_bytes(size) if size else "size unknown"]
    for age in _AGES:
        if facts.lasted(*key) >= age:
            parts.append(f"for more than {format_duration(age)}")
            break
    return f"{name} ({', '.join(parts)})"


_HOUR = 3600 * MICROSECONDS
_AGES = (24 * _HOUR, 6 * _HOUR, _HOUR, 10 * 60 * MICROSECONDS)


def _cost(facts: Facts, gpu: GpuSituation, held: int) -> str:
    """What that memory would be good for."""
    lost = sorted(set(_lost_models(facts, gpu, held)))
    if not lost:
        return "nobody else can use that memory, because it cannot be asked for"
    named = ", ".join(lost[:NAMED]) + (f" and {len(lost) - NAMED} more" if len(lost) > NAMED else "")
    return f"because of it, these models do not fit on {gpu.name}: {named}"


def _lost_models(facts: Facts, gpu: GpuSituation, held: int) -> Iterator[str]:
    """Models that would fit if everybody gave what they can, and do not as long as this much is held."""
    card = facts.cards.get(gpu.uuid)
    if card is None:
        return
    without_it = min(card.limit, card.ceiling + held)
    for engine in facts.engines.values():
        for model in engine.models:
            if not model.remote and model.needs is not None and card.ceiling < model.needs <= without_it:
                yield f"{harmless(model.name, 60)} of {engine.id}"
