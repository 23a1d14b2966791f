"""Which GPU a person means."""

from collections.abc import Mapping
from typing import Any

import pytest

from gpusupervisor.cli.cards import find
from gpusupervisor.cli.exits import FAILED, WRONG_USE, CommandFailed

GPU = "org.gpusupervisor1.Gpu"
OBJECTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "/gpus/b": {GPU: {"Uuid": "GPU-0aaa1111", "Name": "NVIDIA RTX 4090 (GPU-0aaa)", "PciBusId": "0000:41:00.0"}},
    "/gpus/a": {GPU: {"Uuid": "GPU-1bbb2222", "Name": "NVIDIA RTX 4090 (GPU-1bbb)", "PciBusId": "0000:01:00.0"}},
    "/gpus/c": {GPU: {"Uuid": "1ccc3333", "Name": "Orin (nvgpu)", "PciBusId": "0000:81:00.0"}},
    "/tenants/x": {"org.gpusupervisor1.Tenant": {}},
}


@pytest.mark.parametrize(
    ("typed", "uuid"),
    [
        ("0", "GPU-1bbb2222"), ("1", "GPU-0aaa1111"), ("2", "1ccc3333"), ("GPU-0", "GPU-0aaa1111"),
        ("gpu-0A", "GPU-0aaa1111"), ("0aaa", "GPU-0aaa1111"), ("1ccc", "1ccc3333"), ("orin", "1ccc3333"),
    ],
)  # fmt: skip
def test_a_gpu_has_an_index_a_name_and_a_uuid(typed: str, uuid: str) -> None:
    assert find(OBJECTS, typed)[1] == uuid


@pytest.mark.parametrize("typed", ["", "4090", "GPU-", "7", "GPU-9", "1060"])
def test_what_names_no_gpu_or_several_is_refused_with_those_there_are(typed: str) -> None:
    with pytest.raises(CommandFailed, match=r"0 \(NVIDIA RTX 4090 \(GPU-1bbb\), GPU-1bbb2222\)") as refused:
        find(OBJECTS, typed)
    assert refused.value.exit_code == WRONG_USE


def test_without_a_gpu_health_is_named() -> None:
    with pytest.raises(CommandFailed, match="gpusupervisorctl health") as refused:
        find({}, "0")
    assert refused.value.exit_code == FAILED
