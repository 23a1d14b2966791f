"""Layers: files of the same name merge key by key, the later one wins, and every value keeps its source."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpusupervisor.configuration.document import Problem, Table

T = TypeVar("T")
KeyPath = tuple[str | int, ...]
Finding = tuple[KeyPath, str]
"""What a check found wrong: the key and a sentence."""


@dataclass(frozen=True, slots=True)
class Sourced:
    """A value (anything but a table) and the file it came from."""

    value: object
    file: str


Tree = Mapping[str, "Sourced | Tree"]
"""A table whose leaves know their source; lists are leaves: they are replaced whole."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one file of one layer brings; `table` is None for a mask, which hides what earlier layers said."""

    file: str
    table: Table | None


@dataclass(frozen=True, slots=True)
class Stacked(Generic[T]):
    """The outcome of layering: the effective tree, its checked value and what was passed over."""

    tree: Tree
    value: T | None
    """None when no layer gave a usable value, or the last one masked it."""
    problems: tuple[Problem, ...]


def sourced(table: Table, file: str) -> Tree:
    """The table with its source at every leaf."""
    return {
        key: sourced(value, file) if isinstance(value, dict) else Sourced(value, file) for key, value in table.items()
    }


def merge(earlier: Tree, later: Tree) -> Tree:
    """Key by key, tables recursively; everything else of `later` replaces what was there.

    Associative for files of one schema, where a key is a table in all of them or in none.
    """
    merged = dict(earlier)
    for key, value in later.items():
        before = merged.get(key)
        if before is None or isinstance(before, Sourced) or isinstance(value, Sourced):
            merged[key] = value
        else:
            merged[key] = merge(before, value)
    return merged


def plain(tree: Tree) -> Table:
    """The values alone."""
    return {key: value.value if isinstance(value, Sourced) else plain(value) for key, value in tree.items()}


def source(tree: Tree, path: KeyPath) -> str:
    """The file that a key came from; empty for a key that is not there, and for a table of several files."""
    node: Sourced | Tree | None = tree
    for step in path:
        if node is None or isinstance(node, Sourced):
            break
        node = node.get(str(step))
    return node.file if isinstance(node, Sourced) else ""


def key_text(path: KeyPath) -> str:
    """The path as a person writes it: "release[0].json"."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def stack(
    start: Tree,
    contributions: Sequence[Contribution],
    check: Callable[[Table], tuple[T | None, Sequence[Finding]]],
) -> Stacked[T]:
    """Lay one contribution over the other, from `start`; one that makes the whole wrong is passed over.

    So what the earlier layers said stands, and every problem names the file that brought it.
    """
    tree, value = start, None
    problems: list[Problem] = []
    for contribution in contributions:
        if contribution.table is None:
            tree, value = start, None
            continue
        candidate = merge(tree, sourced(contribution.table, contribution.file))
        checked, findings = check(plain(candidate))
        if findings or checked is None:
            problems += [
                Problem(source(candidate, path) or contribution.file, key_text(path), message)
                for path, message in findings
            ]
        else:
            tree, value = candidate, checked
    return Stacked(tree, value, tuple(problems))
