"""`[models]` of tenant files, and what shipped ones say there."""

import pytest

from gpusupervisor.tenants.catalog import SHIPPED, load_catalog
from gpusupervisor.tenants.definition import ModelFolders
from tests.tenants.test_schema import MINIMAL, check, good


def test_directories_and_their_layout_arrive() -> None:
    assert good(MINIMAL).models is None
    told = good(MINIMAL + '[models]\ndirectories = ["/srv/a", "/srv/b c"]\nlayout = "ollama"\n')
    assert told.models == ModelFolders(("/srv/a", "/srv/b c"), "ollama")
    assert good(MINIMAL + '[models]\ndirectories = ["/srv/a"]\n').models == ModelFolders(("/srv/a",), "files")


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("", "models.directories", "is missing"),
        ('directories = "/srv"', "models.directories", "a list of texts"),
        ('directories = ["/"]', "models.directories[0]", "no plain absolute path"),
        ('directories = ["srv"]', "models.directories[0]", "no plain absolute path"),
        ('directories = ["~/models"]', "models.directories[0]", "no plain absolute path"),
        ('directories = ["/srv/../etc"]', "models.directories[0]", "no plain absolute path"),
        ('directories = ["/srv/./a"]', "models.directories[0]", "no plain absolute path"),
        ('directories = ["/srv//a"]', "models.directories[0]", "no plain absolute path"),
        ('directories = ["/srv/"]', "models.directories[0]", "no plain absolute path"),
        (f'directories = ["/{"x" * 1100}"]', "models.directories[0]", "longer than"),
        ('directories = ["/srv"]\nlayout = "olama"', "models.layout", 'did you mean "ollama"'),
        ('directories = ["/srv"]\nfolder = "x"', "models.folder", "unknown key"),
    ],
)
def test_what_is_wrong_is_named(text: str, key: str, words: str) -> None:
    definition, problems = check(f"{MINIMAL}[models]\n{text}\n")
    assert definition is None
    assert words in problems[key]


def test_too_many_directories_are_an_error() -> None:
    many = ", ".join(f'"/srv/{number}"' for number in range(17))
    assert "more than 16" in check(f"{MINIMAL}[models]\ndirectories = [{many}]\n")[1]["models.directories"]


def test_shipped_definitions_say_where_models_are_and_explain_tells_who_said_it() -> None:
    catalog = load_catalog([SHIPPED])
    ollama = catalog.definitions["ollama"].models
    assert ollama is not None
    assert (ollama.layout, ollama.directories[0]) == ("ollama", "/usr/share/ollama/.ollama/models")
    assert 'layout = "ollama"  # shipped' in catalog.explain("ollama")
    assert catalog.definitions["desktop"].models is None
