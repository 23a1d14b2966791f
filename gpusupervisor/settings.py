"""The daemon's own settings, `gpusupervisor.toml`, layered as tenant files are."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpusupervisor.configuration.checking import TableReader
from gpusupervisor.configuration.document import DocumentError, Problem, Table, read_document
from gpusupervisor.configuration.layers import Contribution, Finding, stack

LAYERS = (
    Path("/usr/lib/gpusupervisor/gpusupervisor.toml"),
    Path("/etc/gpusupervisor/gpusupervisor.toml"),
    Path("/run/gpusupervisor/gpusupervisor.toml"),
)
"""The later file wins, key by key."""

SMALLEST_STORE = 4 << 20
"""Bytes."""
LONGEST_INTERVAL = 15_000_000
"""Microseconds between two looks. systemd is told once per look that the service is alive, and its WatchdogSec= is
30 s; what engines told at the look before is too old after about as long as this."""

_MILLISECOND = 1000
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND


@dataclass(frozen=True, slots=True)
class Settings:
    """How the daemon goes about its work. Bytes and microseconds."""

    automatic: bool = True
    """Make room by itself; false: only observe, and act when asked over D-Bus."""
    reserve: int = 600 << 20
    """VRAM kept free for the desktop on every GPU."""
    reservation: int = 45 * _SECOND
    """How long room just made is kept for its beneficiary."""
    interval: int = _SECOND
    """Between two looks while something is busy or memory moves."""
    idle_interval: int = 3 * _SECOND
    """Between two looks while all is idle."""
    large_desktop: int = 3 << 30
    """VRAM from which on the desktop is unusually large: a compositor, a browser and a few windows hold less."""
    warm_budget: int | None = None
    """Bytes of RAM that models may fill which are read into it by themselves; None: a quarter of it."""
    telemetry_keep: int = 30 * _DAY
    """How long telemetry is kept; `keep` of the table `telemetry`."""
    telemetry_max_size: int = 200 << 20
    """What the telemetry store may take on disk; `max-size` there."""


def load_settings(layers: Sequence[Path] = LAYERS) -> tuple[Settings, tuple[Problem, ...]]:
    """The effective settings and the problems; a file with a problem is passed over whole, the others count."""
    contributions: list[Contribution] = []
    problems: list[Problem] = []
    for path in layers:
        try:
            contributions.append(Contribution(str(path), read_document(path)))
        except FileNotFoundError:
            continue
        except DocumentError as error:
            problems.append(Problem(str(path), "", str(error)))
    stacked = stack({}, contributions, check_settings)
    return stacked.value or Settings(), (*problems, *stacked.problems)


def check_settings(table: Table) -> tuple[Settings, Sequence[Finding]]:
    """The settings in a table, and everything that is wrong with it."""
    findings: list[Finding] = []
    reader = TableReader(table, findings)
    fallback = Settings()
    keep, max_size = _telemetry(reader, fallback)
    settings = Settings(
        automatic=reader.boolean("automatic", fallback.automatic),
        reserve=reader.size("reserve", fallback.reserve),
        reservation=reader.duration("reservation", fallback.reservation, 0, 3600 * _SECOND),
        interval=reader.duration("interval", fallback.interval, 100 * _MILLISECOND, LONGEST_INTERVAL),
        idle_interval=reader.duration("idle-interval", fallback.idle_interval, 100 * _MILLISECOND, LONGEST_INTERVAL),
        large_desktop=reader.size("large-desktop", fallback.large_desktop),
        warm_budget=_warm_budget(reader),
        telemetry_keep=keep,
        telemetry_max_size=max_size,
    )
    reader.finish()
    if settings.idle_interval < settings.interval and not findings:
        reader.complain("idle-interval", "is shorter than interval; allowed: as long or longer")
    return settings, findings


def _warm_budget(reader: TableReader) -> int | None:
    if reader.raw("warm-budget") in (None, "auto"):
        return None
    return reader.size("warm-budget", 0, '"auto", ')


def _telemetry(reader: TableReader, fallback: Settings) -> tuple[int, int]:
    """`keep` and `max-size` of the table `telemetry`."""
    with reader.table("telemetry") as table:
        if table is None:
            return fallback.telemetry_keep, fallback.telemetry_max_size
        keep = table.duration("keep", fallback.telemetry_keep, 3600 * _SECOND, 3660 * _DAY)
        size = table.size("max-size", fallback.telemetry_max_size)
        if size < SMALLEST_STORE:
            table.complain("max-size", 'is too small to be of use; allowed: "4M" or more')
        return keep, size
