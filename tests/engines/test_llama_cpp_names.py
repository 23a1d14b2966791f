"""Every name in the table of llama.cpp exists in llama.cpp: looked up in the program text that xllamacpp brings."""

import importlib.util
import re
from pathlib import Path

import pytest

from gpusupervisor.engines.tables import TABLES
from gpusupervisor.engines.tables.common import GGML

if importlib.util.find_spec("xllamacpp") is None:
    pytest.skip("xllamacpp is not installed", allow_module_level=True)

EARLIER = frozenset({"--mlock", "LLAMA_ARG_MLOCK", "LLAMA_ARG_MODEL_DRAFT"})
"""Names that earlier builds have and the newest one does not."""
OF_CUDA = frozenset(name for known in GGML for name in known.variables)


def program() -> bytes:
    found = importlib.util.find_spec("xllamacpp")
    assert found is not None
    assert found.origin is not None
    return b"".join(file.read_bytes() for file in Path(found.origin).parent.glob("*.so"))


def test_every_flag_and_variable_is_one_of_llama_cpps() -> None:
    text = program()
    table = TABLES["llama.cpp"]
    names = {name for known in table.settings for name in (*known.flags, *known.unset_by)}
    variables = table.variables() - OF_CUDA
    # A negative variable is made of the positive one at run time (common_arg::get_value_from_env).
    positive = {re.sub("^LLAMA_ARG_NO_", "LLAMA_ARG_", name) for name in variables}
    missing = {name for name in names | positive if name.encode() + b"\0" not in text}
    assert missing == EARLIER


@pytest.mark.parametrize("name", ["--sleep-idle-second", "LLAMA_ARG_SLOTS_OF_NOBODY"])
def test_a_name_that_does_not_exist_is_found_out(name: str) -> None:
    assert name.encode() + b"\0" not in program()
