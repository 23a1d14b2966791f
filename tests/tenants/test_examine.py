"""The process that checks one tenant file."""

import io
import json
import os
import resource
import sys

import pytest

from gpusupervisor.tenants import examine
from gpusupervisor.tenants.catalog import SHIPPED


def test_it_checks_also_where_its_priority_may_not_be_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(_by: int) -> int:
        raise PermissionError("the unit's system call filter")

    monkeypatch.setattr(os, "nice", refused)
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["examine", "llama-server.toml", str(SHIPPED)])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"priority = 1000\n")))
    examine.main()
    [problem] = json.loads(capsys.readouterr().out)
    assert "priority" in problem
