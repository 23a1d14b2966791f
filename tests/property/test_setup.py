"""Whatever holds VRAM: what `setup` proposes is right, takes in the process and nobody else, and is proposed once."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusupervisor.cli.setup.findings import Findings, Process, Tenant, Unit
from gpusupervisor.cli.setup.proposals import WORTHWHILE, Advice, advise
from gpusupervisor.cli.setup.toml_text import CannotExtend, Change, extended
from gpusupervisor.configuration.layers import plain
from gpusupervisor.foreign_text import harmless
from gpusupervisor.processes.identity import ProcessIdentity, ProcessKey
from gpusupervisor.tenants.catalog import SHIPPED, Catalog, load_catalog
from gpusupervisor.tenants.hypothetical import recognise

OK = {"id": "driver", "state": "ok", "summary": "", "impact": "", "remedy": ""}
CATALOG = load_catalog((SHIPPED,))
GIB = 1 << 30

words = st.text(st.sampled_from("abcXYZ019-_.+[*?@ü日"), min_size=1, max_size=8).filter(lambda word: word.strip(".-"))
folders = st.lists(words, min_size=1, max_size=3).map(lambda parts: "/opt/" + "/".join(parts))
units = st.sampled_from(["", "session-2.scope", "docker.service", "user@1000.service", "run-r12.service"]) | words.map(
    lambda word: f"x{word}.service"
)
containers = st.sampled_from(["", "", "a" * 64, "b" * 64, "my-container"])


@st.composite
def identities(draw: st.DrawFn, pid: int) -> ProcessIdentity:
    """A program of its own, or a script that Python runs."""
    folder, name = draw(folders), draw(words)
    unit, user_unit, container = draw(units), draw(units), draw(containers)
    more = draw(st.lists(words.map(lambda word: f"--{word}"), max_size=2))
    if draw(st.booleans()):
        executable, line = f"{folder}/{name}", (f"{folder}/{name}", *more)
    else:
        executable = "/usr/bin/python3.11"
        script = draw(st.sampled_from([name, "main.py", "train.py"]))
        line = (draw(st.sampled_from(["python", "/venv/bin/python3"])), f"{folder}/{script}", *more)
    return ProcessIdentity(
        ProcessKey(pid, pid), 1, 1000, name[:15], executable, line, unit=unit, user_unit=user_unit, container=container
    )


machines = st.integers(1, 5).flatmap(lambda count: st.tuples(*(identities(100 + number) for number in range(count))))


def as_seen(identity: ProcessIdentity, why: str = "", *, thoroughly: bool) -> Process:
    """The process as the service tells of it."""
    return Process(
        identity.key.pid, harmless(identity.name, 1024), GIB, harmless(identity.program), harmless(identity.unit),
        harmless(identity.user_unit), identity.container,
        path=identity.executable if thoroughly else "",
        command_line=identity.placed_command_line if thoroughly else (),
        recognised_by=why,
    )  # fmt: skip


def tenant_of(catalog: Catalog, identity: ProcessIdentity) -> str:
    found = recognise(catalog, identity)
    return found.tenant if found else ""


def looked_at(catalog: Catalog, machine: Sequence[ProcessIdentity], *, thoroughly: bool) -> Findings:
    """What `setup` finds when these definitions are in force."""
    strangers, held = [], dict[str, list[Process]]()
    for each in machine:
        found = recognise(catalog, each)
        if found is None:
            strangers.append(as_seen(each, thoroughly=thoroughly))
        else:
            held.setdefault(found.tenant, []).append(as_seen(each, found.why, thoroughly=thoroughly))
    tenants = {
        name: Tenant(name, "", "idle", False, GIB, True, None, "", False, "", tuple(processes), {})
        for name, processes in held.items()
    }
    return Findings(OK, (), tenants, frozenset(catalog.definitions), (), tuple(strangers))


def with_files(advice: Advice) -> Catalog:
    """The definitions once everything that is proposed is in /etc."""
    with tempfile.TemporaryDirectory() as folder:
        for each in advice.proposals:
            Path(folder, f"{each.tenant}.toml").write_text(each.text(None))
        return load_catalog((SHIPPED, Path(folder)))


@settings(max_examples=60)
@given(machines, st.booleans())
def test_what_is_proposed_is_right_takes_in_the_process_and_is_proposed_once(
    machine: tuple[ProcessIdentity, ...], thoroughly: bool
) -> None:
    before = looked_at(CATALOG, machine, thoroughly=thoroughly)
    advice = advise(before)
    assert advise(before) == advice
    assert len({each.tenant for each in advice.proposals}) == len(advice.proposals)
    for proposal in advice.proposals:
        assert CATALOG.check_text(f"{proposal.tenant}.toml", proposal.text(None)) == ()
    after = with_files(advice)
    assert after.problems == ()
    assert not advise(looked_at(after, machine, thoroughly=thoroughly)).proposals
    for each in machine:
        if tenant := tenant_of(CATALOG, each):
            assert tenant_of(after, each).partition("@")[0] == tenant.partition("@")[0], "it was somebody's already"
    if thoroughly:
        named = sum("nothing tells it" in hint for hint in advice.hints)
        assert sum(not tenant_of(after, each) for each in machine) <= named


@given(st.integers(0, 4 * GIB), st.sampled_from(["vllm", "comfyui"]), st.sampled_from(["idle", "busy"]))
def test_a_need_that_is_proposed_covers_what_is_held_and_is_proposed_once(
    held: int, engine: str, activity: str
) -> None:
    tree = plain(CATALOG.trees[engine])
    tenant = Tenant(engine, engine, activity, False, held, True, None, "", True, "", (), tree)
    advice = advise(Findings(OK, (), {engine: tenant}, frozenset({engine}), (), ()))
    if held < WORTHWHILE or (engine == "comfyui" and activity == "idle"):
        assert not advice.proposals
        return
    [proposal] = advice.proposals
    after = with_files(advice)
    need = after.definitions[engine].needs_vram
    assert need is not None
    assert held <= need < held + 256 * 2**20
    definition = plain(after.trees[engine])
    tenant = replace(tenant, definition=definition, need=need)
    assert not advise(Findings(OK, (), {engine: tenant}, frozenset({engine}), (), ())).proposals
    assert proposal.tenant == engine


@given(st.integers(1, 65535), folders)
def test_an_address_and_folders_of_a_unit_are_proposed_once(port: int, folder: str) -> None:
    environment = {"OLLAMA_HOST": f"0.0.0.0:{port}", "OLLAMA_MODELS": folder}

    def findings(catalog: Catalog) -> Findings:
        identity = ProcessIdentity(
            ProcessKey(1, 1), 1, 1, "", unit="ollama.service", environment=tuple(environment.items())
        )
        found = recognise(catalog, identity)
        assert found is not None
        unit = Unit("ollama.service", False, "active", found.tenant, found.endpoint, (), environment)
        definition = plain(catalog.trees["ollama"])
        tenant = Tenant("ollama", "ollama", "unknown", False, 0, True, None, "", False, "", (), definition)
        return Findings(OK, (), {"ollama": tenant}, frozenset({"ollama"}), (unit,), ())

    advice = advise(findings(CATALOG))
    after = with_files(advice)
    assert after.problems == ()
    definition = after.definitions["ollama"]
    assert definition.endpoint is not None
    assert definition.endpoint.url == f"http://127.0.0.1:{port}"
    assert definition.models is not None
    assert folder in definition.models.directories
    assert not advise(findings(after)).proposals


KEYS = st.sampled_from([("needs-vram",), ("endpoint", "url"), ("models", "directories")])
LINES = st.lists(
    st.sampled_from(
        ["priority = 3", "# a remark", "",
          "[endpoint]", "[models]", 'port-flags = ["--port"]', "[[release]]", 'x = """',
         '"""', "[endpoint] # mine", 'needs-vram = "1G"', 'endpoint = { url = "x" }', "url = 'y'", "a = [", "]"]
    ),
    max_size=8,
)  # fmt: skip


@given(LINES, KEYS, st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
def test_extending_a_file_keeps_every_line_or_is_refused(lines: list[str], path: tuple[str, ...], value: str) -> None:
    text = "\n".join(lines)
    try:
        new = extended(text, [Change(path, value, "because")])
    except CannotExtend:
        return
    kept = iter(new.splitlines())
    assert all(line in kept for line in text.splitlines())
    with pytest.raises(CannotExtend, match="is set already"):
        extended(new, [Change(path, value, "because")])
