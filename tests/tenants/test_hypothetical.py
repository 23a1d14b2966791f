"""What a process would be that is only described."""

from typing import Any

import pytest

from gpusupervisor.processes.identity import ProcessIdentity, ProcessKey
from gpusupervisor.tenants.catalog import SHIPPED, load_catalog
from gpusupervisor.tenants.hypothetical import recognise

CATALOG = load_catalog((SHIPPED,))


@pytest.mark.parametrize(
    ("facts", "tenant", "port"),
    [
        ({"unit": "ollama.service", "environment": (("OLLAMA_HOST", "0.0.0.0:11500"),)}, "ollama", 11500),
        ({"unit": "my-llm.service", "executable": "/usr/local/bin/ollama"}, "ollama@my-llm", 11434),
        ({"unit": "comfyui@.service"}, "comfyui", 8188),
        ({"user_unit": "comfyui.service", "command_line": ("python", "main.py", "--port", "8190")}, "comfyui", 8190),
    ],
)
def test_a_unit_is_what_its_processes_will_be(facts: dict[str, Any], tenant: str, port: int) -> None:
    found = recognise(CATALOG, ProcessIdentity(ProcessKey(0, 0), 0, 0, "", **facts))
    assert found is not None
    assert (found.tenant, found.endpoint) == (tenant, f"http://127.0.0.1:{port}")


@pytest.mark.parametrize("unit", ["ssh.service", "gdm.service", ""])
def test_what_does_not_compute_for_a_tenant_is_nobodys(unit: str) -> None:
    assert recognise(CATALOG, ProcessIdentity(ProcessKey(0, 0), 0, 0, "", unit=unit)) is None
