"""The effective configuration: the settings and tenants that were read from files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpusupervisor.settings import Settings, load_settings
from gpusupervisor.telemetry.chores import Limits
from gpusupervisor.tenants.catalog import Catalog, load_catalog


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything that was read from files."""

    settings: Settings
    catalog: Catalog
    problems: tuple[str, ...]
    """One sentence for each mistake, with file and key."""


def load_configuration(settings_layers: Sequence[Path], tenant_layers: Sequence[Path]) -> Configuration:
    """Return what the files say; a file with a mistake is left out and is among the problems. Blocks."""
    settings, problems = load_settings(settings_layers)
    catalog = load_catalog(tenant_layers)
    return Configuration(settings, catalog, tuple(str(problem) for problem in (*problems, *catalog.problems)))


def telemetry_limits(settings: Settings) -> Limits:
    """Return what telemetry may keep."""
    return Limits(settings.telemetry_keep, settings.telemetry_max_size)
