"""gpusupervisorctl-json(5): what each command prints, key by key, compared with what it does print."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpusupervisor.bus.service import BusService
from gpusupervisor.cli import shapes
from tests.bus.fakes import FakeController
from tests.cli.conftest import Run
from tests.manual.entries import every_command
from tests.manual.pages import definitions, parts, section

PAGE = "gpusupervisorctl-json.5"
WITHOUT_JSON = {"edit", "top", "record", "record-card"}
PROFILE = "{profile}"
FILM = str(Path(__file__).parents[1] / "films" / "seen" / "01-step-by-step.film")
RUNS: Mapping[str, tuple[str, ...]] = {
    "status": (),
    "setup": ("--dry-run",),
    "tenants": (),
    "tenant": ("ollama",),
    "plan": ("ollama",),
    "make-room": ("ollama",),
    "release": ("comfyui",),
    "engines": (),
    "engine": ("ollama",),
    "health": (),
    "verify": ("--dry-run",),
    "fans": (),
    "fans set": ("60", "--fan", "0", "--preview"),
    "fans curve": ("40:30", "80:100", "--fan", "0", "--preview"),
    "fans auto": ("--fan", "0", "--preview"),
    "profile": (),
    "profile try": (PROFILE,),
    "profile confirm": (),
    "profile revert": (),
    "profile apply": (PROFILE,),
    "profile reset": (),
    "jobs": (),
    "job": ("1",),
    "cancel": ("1",),
    "warm": (),
    "models": (),
    "load": ("ollama", "x"),
    "unload": ("ollama", "x"),
    "autotune": ("GPU", "ollama", "--model", "x"),
    "cat": ("ollama",),
    "lint": (),
    "automatic": ("on",),
    "reload": (),
    "history": ("--series", "holding"),
    "events": (),
    "learned": (),
    "forget": ("ollama",),
    "replay": (FILM,),
}
"""How each command is run so that it prints its JSON."""
BY_NAME = {"tenant_holdings", "holdings", "free"}
"""Objects whose keys are names that others chose."""
SIGNALS: Mapping[str, list[Any]] = {
    "PropertiesChanged": ["org.gpusupervisor1.Tenant", {}, []],
    "InterfacesAdded": ["/x", {}],
    "InterfacesRemoved": ["/x", []],
    "NameOwnerChanged": ["", "", ":1.1"],
    "Unheard": [1],
}
SECTIONS = {
    name: text for title, text in parts(section(PAGE, "COMMANDS"), "##").items() if title for name in title.split(", ")
}


def described(name: str) -> str:
    assert name in SECTIONS, f"{PAGE} does not say what {name!r} prints: COMMANDS has no heading with it"
    return SECTIONS[name]


def terms(text: str) -> set[str]:
    return {name for each in definitions(text) for name in each.names}


def keys(value: Any) -> Iterator[str]:
    """All keys in a value, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            if key not in BY_NAME:
                yield from keys(inner)
    elif isinstance(value, list):
        for each in value:
            yield from keys(each)


def test_every_command_has_a_section_and_no_other() -> None:
    known = {name for name, _ in every_command()} - WITHOUT_JSON
    assert known - SECTIONS.keys() == set(), f"{PAGE} does not say what these commands print"
    assert SECTIONS.keys() - known == set(), f"{PAGE} has sections of commands that are not there"


@pytest.mark.parametrize("name", [name for name, _ in every_command() if name not in WITHOUT_JSON | {"monitor"}])
async def test_what_a_command_prints_is_described_and_nothing_else(
    name: str, ctl: Run, service: BusService, controller: FakeController, tmp_path: Path
) -> None:
    text = described(name)
    assert name in RUNS, f"say in RUNS how {name!r} is run, so that what it prints can be compared with {PAGE}"
    (tmp_path / "profile.json").write_text('{"power-limit": "300W"}')
    words = [str(tmp_path / "profile.json") if word == PROFILE else word for word in RUNS[name]]
    shown = await ctl(*name.split(), *words, "--json")
    assert shown.output, shown.errors
    printed = json.loads(shown.output)
    objects = printed if isinstance(printed, list) else [printed]
    assert objects, f"{name!r} prints an empty array here, so nothing is compared"
    top = {key for each in objects for key in each}
    assert top - terms(text) == set(), f"{PAGE} does not describe these keys of {name!r}"
    if name != "status":
        assert terms(text) - top == set(), f"{PAGE} describes keys of {name!r} that are not there"
    unsaid = {key for key in keys(printed) if not re.search(rf"\b{key.replace('-', '_')}\b", _plain(name, text))}
    assert unsaid == set(), f"{PAGE} does not say what these keys within {name!r} are"


def _plain(name: str, text: str) -> str:
    """The words of a section, and of those that it leads to."""
    led = [SECTIONS[other] for other in re.findall(r"[Aa]s \*(\w+)\* prints", text) if other != name]
    return " ".join([text, *led]).replace("\\", "").replace("-", "_")


async def test_keys_of_cards_are_described_with_the_status(ctl: Run, service: BusService) -> None:
    shown = json.loads((await ctl("status", "--json")).output)
    card = {key for each in shown["gpus"] for key in each}
    assert terms(described("status")) == card | shown.keys()


def test_what_monitor_prints_is_described() -> None:
    text = described("monitor")
    told = set(re.findall(r"\*(\w+)\*", text))
    bodies = {**SIGNALS, **{name: [""] * len(arguments) for name, arguments in shapes.ARGUMENTS.items()}}
    there = {"received_at"}
    for member in SIGNALS:
        there |= shapes.signal("/x", "org.x", member, bodies[member]).keys()
    assert told == there
    for member, arguments in shapes.ARGUMENTS.items():
        assert shapes.signal("/x", "org.x", member, bodies[member]).keys() >= set(arguments)
