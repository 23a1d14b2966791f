"""Configuration files are bounded before anything looks at them."""

import os
from pathlib import Path

import pytest

from gpusupervisor.configuration.document import DocumentError, parse_document, read_document


def test_toml_and_json_give_the_same_table() -> None:
    toml = 'title = "A"\n[match]\nunits = ["a.service"]\n'
    json = '{"title": "A", "match": {"units": ["a.service"]}}'
    assert parse_document("a.toml", toml) == parse_document("a.json", json)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.toml", "x = ", "is not TOML"),
        ("a.json", "{", "is not JSON"),
        ("a.json", "[]", "must be a table"),
        ("a.json", '{"a": 1, "a": 2}', "'a' is there twice"),
        ("a.json", '{"a": null}', "null"),
        ("a.json", '{"a": NaN}', "not finite"),
        ("a.json", '{"a": "\\ud800"}', "lone surrogate"),
        ("a.json", '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested deeper"),
        ("a.toml", "a = " + "[" * 50_000 + "]" * 50_000, "nested deeper"),
        ("a.toml", "a = " + "[" * 20 + "]" * 20, "nested deeper"),
        ("a.toml", "a = [" + "1," * 600 + "]", "more than 512 entries"),
        ("a.toml", f'a = "{"x" * 5000}"', "more than 4096 characters"),
        ("a.toml", "a = 2026-01-01", "date or time"),
        ("a.toml", "#" * (256 * 1024 + 1), "longer than 256 KiB"),
        ("a.yaml", "a: 1", ".toml or .json"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(name: str, text: str, complaint: str) -> None:
    with pytest.raises(DocumentError, match=complaint):
        parse_document(name, text)


def test_an_empty_file_and_dev_null_mask(tmp_path: Path) -> None:
    (tmp_path / "empty.toml").touch()
    (tmp_path / "null.toml").symlink_to("/dev/null")
    assert read_document(tmp_path / "empty.toml") is None
    assert read_document(tmp_path / "null.toml") is None


def test_a_fifo_does_not_block_and_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.toml")
    with pytest.raises(DocumentError, match="not a regular file"):
        read_document(tmp_path / "fifo.toml")


def test_a_link_to_nowhere_is_refused_and_a_missing_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "link.toml").symlink_to(tmp_path / "gone.toml")
    with pytest.raises(DocumentError, match="link to nowhere"):
        read_document(tmp_path / "link.toml")
    with pytest.raises(FileNotFoundError):
        read_document(tmp_path / "gone.toml")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b'a = "\xff"')
    with pytest.raises(DocumentError, match="UTF-8"):
        read_document(tmp_path / "a.toml")
