"""Environment files are read as systemd reads them."""

import pytest

from gpusupervisor.unit_syntax import as_it_stands, assigned_by_unit_file, environment_file, expanded, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1\nB=two words \n", {"A": "1", "B": "two words"}),
        ("# A=1\n; B=2\nC=3", {"C": "3"}),
        ("# on \\\nA=1\nB=2\n", {"B": "2"}),
        ('A=\'x  # y\'\nB="a \\"b\\" \\$c \\d"\n', {"A": "x  # y", "B": 'a "b" $c \\d'}),
        ("A=one \\\ntwo\n", {"A": "one two"}),
        ("A=back\\slash\n", {"A": "backslash"}),
        ("A='it''s' \n", {"A": "its"}),
        ("A=it's\n", {"A": "it's"}),
        (" A = 5m \n", {"A": "5m"}),
        ("A=1\nA=2\n", {"A": "2"}),
        ("A=\nno assignment\n1B=x\nexport C=1\n", {"A": ""}),
        ("A=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
        ("A=kept\\ \n", {"A": "kept "}),
        ("A='never closed\nB=1", {"A": "never closed\nB=1"}),
        ("", {}),
    ],
)
def test_environment_files(text: str, expected: dict[str, str]) -> None:
    assert environment_file(text) == expected


def test_words_are_cut_at_spaces_and_lose_their_quotes() -> None:
    assert words("A=1 'B=two words' C=\"x y\" D=e\\ f ''") == ["A=1", "B=two words", "C=x y", "D=e f", ""]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('[Service]\nEnvironment="A=1" B=2\nEnvironment=C=3\n', {"A", "B", "C"}),
        ("[Service]\nEnvironment=A=1 \\\n  B=2\n", {"A", "B"}),
        ("Environment=A=1\nEnvironment=\nEnvironment=B=2\n", {"B"}),
        ("#Environment=A=1\nEnvironmentFile=/etc/x\n", set()),
    ],
)
def test_a_unit_files_assignments(text: str, names: set[str]) -> None:
    assert assigned_by_unit_file(text) == names


@pytest.mark.parametrize(
    ("argument", "passed"),
    [
        ("$ARGS", ("--port", "8081")),
        ("${ARGS}", ("--port 8081",)),
        ("${NONE}x", ("x",)),
        ("$$HOME", ("$HOME",)),
        ("a$PORT", ("a$PORT",)),
        ("$NONE", ()),
        ("$PORT/x", ()),
        ("$QUOTED", ("a b", "\\n")),
        ("$", ("$",)),
    ],
)
def test_variables_in_a_command_are_filled_in_as_systemd_does(argument: str, passed: tuple[str, ...]) -> None:
    environment = {"ARGS": "--port 8081", "PORT": "1", "QUOTED": "'a b' \\\\n"}
    assert expanded([argument], environment) == passed


@pytest.mark.parametrize("argument", ["$ARGS", "${ARGS}", "$$HOME", "a$PORT", "$", "--port"])
def test_a_command_without_expansion_stays_as_it_stands(argument: str) -> None:
    assert expanded(as_it_stands([argument]), {"ARGS": "--port 8081", "PORT": "1"}) == (argument,)
