"""Every page can be made, is shown without a complaint, and leads only to pages that there are."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.bus.conftest import need
from tests.manual.pages import SOURCES, expander, page
from tests.system.machine import REPOSITORY

HARMLESS = re.compile(
    r"skipping paragraph macro|input text line longer than 80 bytes|lower case character in document title"
)
"""How scdoc writes: it says "new paragraph" more often than is needed, keeps lines whole, and names as they are."""
OURS = re.compile(r"\*((?:gpusupervisor|org\.gpusupervisor1)[\w.-]*)\*\((\d)\)")


@pytest.fixture(scope="module", params=SOURCES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page as it is installed."""
    need("scdoc")
    name = str(request.param)
    done = subprocess.run(["scdoc"], input=page(name).encode(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    path = tmp_path_factory.mktemp("man") / name
    path.write_bytes(done.stdout)
    return path


def test_man_shows_it_without_a_warning(made: Path) -> None:
    need("man")
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "80"}
    command = ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(made)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_mandoc_finds_nothing_wrong_with_it(made: Path) -> None:
    need("mandoc")
    done = subprocess.run(["mandoc", "-T", "lint", str(made)], capture_output=True, text=True)
    assert [line for line in done.stdout.splitlines() if not HARMLESS.search(line)] == []


def test_what_it_is_about_is_found_by_apropos(made: Path) -> None:
    need("lexgrog")
    done = subprocess.run(["lexgrog", str(made)], capture_output=True, text=True)
    assert f'"{made.stem} - ' in done.stdout, done.stdout


@pytest.mark.parametrize("name", SOURCES)
def test_a_page_is_what_its_file_is_called(name: str) -> None:
    title, number = name.rsplit(".", 1)
    assert page(name).startswith(f'{title}({number}) "gpusupervisor" ')
    assert not re.search(r"(?m)^\t*@", page(name))


@pytest.mark.parametrize("name", SOURCES)
def test_it_leads_only_to_pages_that_there_are(name: str) -> None:
    assert {f"{title}.{number}" for title, number in OURS.findall(page(name))} <= SOURCES.keys()


def test_units_and_journal_lead_to_pages_that_there_are() -> None:
    named = set()
    for file in (*REPOSITORY.glob("systemd/*.service.in"), REPOSITORY / "systemd/gpusupervisor.catalog"):
        found = re.findall(r"man:([\w.-]+)\((\d)\)", file.read_text())
        assert found, file
        named |= {f"{title}.{number}" for title, number in found}
    assert named <= SOURCES.keys()


def test_the_readme_leads_to_every_page_and_only_to_what_is_there() -> None:
    text = (REPOSITORY / "README.md").read_text()
    links = {link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link}
    assert [link for link in links if not (REPOSITORY / link).exists()] == []
    assert {str(path.relative_to(REPOSITORY)) for path in SOURCES.values()} <= links


def test_an_unknown_line_of_a_source_is_an_error() -> None:
    with pytest.raises(SystemExit, match="@interfaces"):
        list(expander().expand("@interfaces Manager"))


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_without_scdoc_the_rest_is_made_and_it_is_said(tmp_path: Path) -> None:
    shutil.copy(REPOSITORY / "Makefile", tmp_path)
    for folder in ("dbus", "systemd", "polkit", "gpusupervisor"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    make = ["make", "-C", str(tmp_path), "man"]
    without = subprocess.run([*make, "SCDOC=no-such-scdoc"], env=environment, capture_output=True, text=True)
    assert without.returncode == 0, without.stderr
    assert "The manual pages are left out: there is no no-such-scdoc\n" in without.stdout
    assert not (tmp_path / "build/man").exists()
    need("scdoc")
    subprocess.run(make, env=environment, check=True, capture_output=True)
    assert {path.name for path in (tmp_path / "build/man").iterdir()} == {".stamp", *SOURCES}
