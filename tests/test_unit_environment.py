"""What a unit's next start will have, out of the files it is made of."""

import os
from pathlib import Path

import pytest

from gpusupervisor.unit_environment import MAX_FILE, Given, environment_of, read_bounded


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_each_value_has_the_file_that_says_so(tmp_path: Path) -> None:
    fragment = write(tmp_path / "a.service", "[Service]\nEnvironment=A=1 B=1\n")
    drop_in = write(tmp_path / "b.conf", "[Service]\nEnvironment=B=2\n")
    first, second = write(tmp_path / "1.env", "C=1\nD=1\n"), write(tmp_path / "2.env", "D=2\nE=1\nF=1\n")
    found, unreadable = environment_of(
        "a.service",
        ["A=1", "B=2", "C=0", "G=9"],
        [fragment, drop_in],
        [(first, False), (second, False)],
        ["E", "F=1", "D=1"],
    )
    assert found == {
        "A": Given("1", fragment),
        "B": Given("2", drop_in),
        "C": Given("1", first),
        "D": Given("2", second),
        "G": Given("9", "a.service"),
    }
    assert unreadable == ()


def test_patterns_and_missing_files(tmp_path: Path) -> None:
    write(tmp_path / "2.env", "A=2")
    write(tmp_path / "1.env", "A=1\nB=1")
    files = [(f"{tmp_path}/*.env", False), (f"{tmp_path}/absent", True), (f"{tmp_path}/absent", False)]
    found, unreadable = environment_of("a.service", [], [str(tmp_path / "gone.service")], files, [])
    assert {name: given.value for name, given in found.items()} == {"A": "2", "B": "1"}
    assert unreadable == ()


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    large = write(tmp_path / "large", "A=1\n" + "#" * MAX_FILE)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    found, unreadable = environment_of(
        "a.service", ["A=0"], [], [(large, False), (str(fifo), False), (str(tmp_path), False)], []
    )
    assert found == {"A": Given("0", "a.service")}
    assert unreadable == (large, str(fifo), str(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_of_roots_is_named(tmp_path: Path) -> None:
    secret = write(tmp_path / "secret", "A=1")
    os.chmod(secret, 0)
    assert environment_of("a.service", [], [], [(secret, True)], [])[1] == (secret,)


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"A=\xff\n")
    assert read_bounded(str(tmp_path / "x")) == "A=\N{REPLACEMENT CHARACTER}\n"
