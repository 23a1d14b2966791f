import pytest
from dbus_fast.validators import is_object_path_valid
from hypothesis import given
from hypothesis import strategies as st

from gpusupervisor.bus.names import escape, gpu_path, tenant_path


@pytest.mark.parametrize(
    ("label", "escaped"),
    [
        ("ollama", "ollama"),
        ("GPU-3f9c", "GPU_2d3f9c"),
        ("7zip", "_37zip"),
        ("vllm@8000.service", "vllm_408000_2eservice"),
        ("a_b", "a_5fb"),
        ("", "_"),
        ("größe", "gr_c3_b6_c3_9fe"),
    ],
)
def test_labels_are_escaped_as_systemd_does(label: str, escaped: str) -> None:
    assert escape(label) == escaped


@given(st.text(), st.text())
def test_every_id_gives_a_valid_path_of_its_own(one: str, other: str) -> None:
    assert is_object_path_valid(tenant_path(one))
    assert is_object_path_valid(gpu_path(one))
    if one != other and "" not in {one, other}:
        assert escape(one) != escape(other)
