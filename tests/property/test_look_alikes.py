"""Whatever else runs: what only looks like an engine is none, and a real server stays where it is."""

import fnmatch
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gpusupervisor.keepers.engine_scan import EngineScan
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.processes.names import INTERPRETERS
from gpusupervisor.processes.procfs import Procfs
from gpusupervisor.tenants.catalog import SHIPPED, load_catalog
from gpusupervisor.tenants.matching import Recognition
from gpusupervisor.tenants.patterns import longest, matches
from gpusupervisor.tenants.recognizer import Recognizer
from gpusupervisor.tenants.signs import signs_of
from gpusupervisor.tenants.take_census import take_census
from tests.gpu.machine import HandClock
from tests.tenants.people import sample, who
from tests.tenants.test_engine_processes import PROCESSES

CATALOG = load_catalog([SHIPPED])
SIGNS = signs_of(CATALOG.definitions.values())
LINES = sorted({" ".join(chain[-1].command_line) for chains in PROCESSES.values() for chain in chains})
OTHERS = st.from_regex(r"(/usr/bin/|/opt/tools/)?[a-z][a-z0-9._-]{0,12}", fullmatch=True).filter(
    lambda name: not name.rsplit("/", 1)[-1].startswith(INTERPRETERS) and not SIGNS.shown_by(who(1, f"{name} x"))
)
"""Programs that are neither engines nor interpreters."""
OPTIONS = st.lists(st.sampled_from(["-r", "-L8080:localhost:8080", "box", "--", "-c", "run"]), max_size=3)
PORTS = st.integers(1, 65535).filter(lambda port: port != 11434)
CLIENTS = st.sampled_from(["/usr/bin/ollama run qwen", "ollama list", "/usr/bin/ollama pull x", "/opt/ollama ps"])


@given(OTHERS, OPTIONS, st.sampled_from(LINES))
def test_a_program_that_is_told_an_engines_command_line_is_none(program: str, options: list[str], line: str) -> None:
    identity = who(5, " ".join([program, *options, line]))
    assert not SIGNS.shown_by(identity)
    assert not SIGNS.could_be_shown_by(identity)


@given(st.lists(st.text(max_size=20), max_size=8), st.text(max_size=20), st.text(max_size=20))
def test_any_process_can_be_judged(command_line: list[str], executable: str, folder: str) -> None:
    one = replace(who(5), command_line=tuple(command_line), executable=executable, working_directory=folder)
    assert SIGNS.shown_by(one) in (True, False)
    assert SIGNS.could_be_shown_by(one) in (True, False)


@st.composite
def clients(draw: st.DrawFn, pid: int) -> ProcessIdentity:
    """A client of the real server; what it may listen on is for something else."""
    ports = tuple(draw(st.lists(PORTS, max_size=2)))
    return who(pid, draw(CLIENTS), ports=ports, variables={"OLLAMA_HOST": "127.0.0.1:11434"})


@given(st.integers(0, 4).flatmap(lambda count: st.tuples(*(clients(pid) for pid in range(100, 100 + count)))))
def test_clients_never_become_servers_or_shift_the_endpoint_of_one(crowd: tuple[ProcessIdentity, ...]) -> None:
    server = who(50, "/usr/bin/ollama serve", executable="/usr/bin/ollama", ports=(11434,))
    identities = {each.key.pid: each for each in (*crowd, server)}
    recognizer = Recognizer()

    def recognize(identity: ProcessIdentity) -> Recognition | None:
        return recognizer.recognize(CATALOG, identity, frozenset(), identities)

    clock = HandClock()
    scan = EngineScan(Procfs(Path("/nonexistent")), clock)
    scan.use(SIGNS)
    scan.followed = dict.fromkeys(identities, clock.now())
    servers = scan.servers(identities, recognize, CATALOG.resolve)
    assert servers == [50]
    census = take_census(sample(), identities, CATALOG, recognizer, servers)
    assert census.tenants["ollama"].endpoint == "http://127.0.0.1:11434"
    assert not [each.id for each in census.tenants.values() if each.id.startswith("ollama@")]


@given(st.text("ab*?[]!-x", max_size=8), st.text("ab[]!-x", min_size=1, max_size=6), st.text("ab]", max_size=3))
def test_a_pattern_matches_as_the_shell_has_it(pattern: str, text: str, rest: str) -> None:
    fits = fnmatch.fnmatchcase(text, pattern)
    assert (longest([pattern], text) >= 0) == fits
    assert matches([pattern], text) == fits
    assert matches([pattern], text, rest) == (fits and not (rest and fnmatch.fnmatchcase(rest, pattern)))
