"""`journalctl -x` explains every kind of entry, with fields that it has."""

import re
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from gpusupervisor.journal.entry import Entry
from gpusupervisor.journal.fields import FIELDS
from gpusupervisor.journal.registry import KINDS

FILE = Path(__file__).parents[2] / "systemd" / "gpusupervisor.catalog"
WIDEST = 100
SHORTEST = 40
"""Characters that an explanation has at least."""


def explanations() -> dict[str, tuple[dict[str, str], str]]:
    """Headers and text, by id."""
    found = {}
    for part in re.split(r"^-- ", FILE.read_text(), flags=re.MULTILINE)[1:]:
        head, _, text = part.partition("\n\n")
        id_, *headers = head.splitlines()
        assert id_ not in found, "explained twice"
        found[id_] = (dict(line.split(": ", 1) for line in headers), text.strip())
    return found


EXPLANATIONS = explanations()


def test_every_kind_is_explained_and_nothing_else() -> None:
    assert EXPLANATIONS.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.__name__)
def test_an_explanation_is_whole_and_names_fields_that_are_always_there(kind: type[Entry]) -> None:
    headers, text = EXPLANATIONS[kind.message_id]
    assert headers.keys() == {"Subject", "Defined-By", "Support", "Documentation"}
    assert headers["Defined-By"] == "gpusupervisor"
    assert len(text) >= SHORTEST
    assert max(map(len, text.splitlines())) <= WIDEST
    there = {FIELDS[each.name].journal_name for each in fields(kind) if "tuple" not in str(each.type)}
    assert set(re.findall(r"@([A-Z0-9_]+)@", headers["Subject"] + text)) <= there


@pytest.mark.skipif(shutil.which("journalctl") is None, reason="journalctl is not installed")
def test_journalctl_understands_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib/systemd/catalog"
    folder.mkdir(parents=True)
    (tmp_path / "var/lib/systemd/catalog").mkdir(parents=True)
    shutil.copy(FILE, folder)
    updated = subprocess.run(
        ["journalctl", f"--root={tmp_path}", "--update-catalog"], capture_output=True, text=True, check=True
    )
    assert updated.stderr == ""
    listed = subprocess.run(
        ["journalctl", f"--root={tmp_path}", "--list-catalog"], capture_output=True, text=True, check=True
    )
    assert {line.split()[0] for line in listed.stdout.splitlines()} == KINDS.keys()
