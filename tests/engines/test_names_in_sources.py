"""Every name in the tables of SGLang and InvokeAI exists in the version that the table names."""

from collections.abc import Iterable

import pytest

from gpusupervisor.engines.table import Table
from gpusupervisor.engines.tables import TABLES
from gpusupervisor.engines.tables.common import TORCH
from tests.engines.sources import names_in, wheel_of

OF_TORCH = frozenset(name for known in TORCH for name in known.variables)
ARGUMENTS = {
    "sglang": ("sglang/srt/server_args.py", "sglang/srt/arg_groups/", "sglang/srt/utils/server_args_config_parser.py"),
    "invokeai": ("invokeai/app/services/config/config_default.py", "invokeai/frontend/cli/arg_parser.py"),
}
"""Where each package has its flags and settings."""


def source_names(engine: str) -> frozenset[str]:
    return names_in(wheel_of(engine, TABLES[engine].checked_against), *ARGUMENTS[engine])


def is_known(name: str, known: frozenset[str], prefix: str = "") -> bool:
    """Whether a flag, variable or key is one of a program's; both make flags and variables of the names of fields."""
    return name in known or name.removeprefix("--").removeprefix(prefix).replace("-", "_").lower() in known


def table_names(table: Table) -> Iterable[str]:
    for known in table.settings:
        yield from (*known.flags, *known.unset_by, *known.keys)
    yield from table.variables() - OF_TORCH


@pytest.mark.parametrize("engine", sorted(ARGUMENTS))
def test_every_name_in_the_table_is_one_of_the_engines(engine: str) -> None:
    known = source_names(engine)
    names = list(table_names(TABLES[engine]))
    assert len(names) > 5
    assert not [name for name in names if not is_known(name, known, f"{engine.upper()}_")]


@pytest.mark.parametrize("name", ["--mem-fraction-dynamic", "max_cache_vram_tb", "INVOKEAI_NOBODY"])
@pytest.mark.parametrize("engine", sorted(ARGUMENTS))
def test_a_name_that_does_not_exist_is_found_out(engine: str, name: str) -> None:
    assert not is_known(name, source_names(engine), f"{engine.upper()}_")
