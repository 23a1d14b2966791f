"""Comparing engines' versions."""

import pytest

from gpusupervisor.tenants.release.versions import at_least


@pytest.mark.parametrize(
    ("version", "minimum", "verdict"),
    [
        ("0.3.10", "0.3.11", False),
        ("0.3.11", "0.3.11", True),
        ("0.33.0", "0.3.11", True),
        ("v1.2", "1.2.0", True),
        ("1.2.0.1", "1.2", True),
        ("0.33.0-rc2", "0.33.0", False),
        ("0.33.1-rc2", "0.33.0", True),
        ("0.5.1-5-g1ed4f52", "0.5.1", True),
        ("0.4.dev12", "0.3", True),
        ("main", "0.3", None),
        ("", "0.3", None),
        ("9" * 50, "0.3", None),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str, minimum: str, verdict: bool | None) -> None:
    assert at_least(version, minimum) is verdict
