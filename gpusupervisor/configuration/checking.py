"""Taking values out of a table, strictly: what is asked for is allowed, everything else is an error.

Problems are collected, not raised, so that a person sees all of them at once. After a problem a reader goes on
with the default; who asked looks at the findings before it believes the values.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from gpusupervisor.clock import UNKNOWN as INFINITY
from gpusupervisor.configuration.document import Table
from gpusupervisor.configuration.layers import Finding, KeyPath
from gpusupervisor.foreign_text import harmless
from gpusupervisor.quantities import (
    BYTES_HELP,
    DURATION_HELP,
    format_duration,
    parse_bytes,
    parse_duration,
)

Complaint = Callable[[str], str]
"""A further check of a text: what is wrong with it, or nothing."""


def closest(word: str, allowed: Sequence[str]) -> str:
    """The hint 'did you mean "x"? ', or nothing."""
    near = difflib.get_close_matches(word[:64], allowed, n=1)
    return f'did you mean "{near[0]}"? ' if near else ""


class TableReader:
    """One table of a configuration file. Missing keys give the default."""

    def __init__(self, table: Table, findings: list[Finding], path: KeyPath = ()) -> None:
        self._table = table
        self._findings = findings
        self._path = path
        self._known: dict[str, None] = {}

    def complain(self, key: str, message: str) -> None:
        """Record a problem of a key (of the table itself when it is empty)."""
        self._findings.append(((*self._path, key) if key else self._path, message))

    def has(self, key: str) -> bool:
        """Is the key there?"""
        return key in self._table

    def names(self) -> list[str]:
        """All keys, for a table whose keys are free."""
        return list(self._table)

    def raw(self, key: str) -> object:
        """The value as it stands; None when it is missing."""
        self._known[key] = None
        return self._table.get(key)

    def finish(self) -> None:
        """Everything that was not asked for is an unknown key."""
        for key in self._table:
            if key not in self._known:
                shown = harmless(key, 64)
                allowed = ", ".join(self._known)
                self._findings.append(
                    ((*self._path, shown), f"unknown key; {closest(key, list(self._known))}allowed here: {allowed}")
                )

    def text(self, key: str, default: str = "", complaint: Complaint | None = None) -> str:
        """A text on one line, not empty."""
        value = self.raw(key)
        if value is None:
            return default
        wrong = _wrong_text(value, complaint)
        if wrong:
            self.complain(key, wrong)
            return default
        return str(value)

    def choice(self, key: str, allowed: Sequence[str], default: str = "") -> str:
        """One of the allowed words."""
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, str) or value not in allowed:
            hint = closest(str(value), allowed)
            self.complain(key, f"is {_shown(value)}; {hint}allowed: {', '.join(allowed)}")
            return default
        return value

    def boolean(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.complain(key, f"is {_shown(value)}; allowed: true, false")
            return default
        return value

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        """A whole number in a range."""
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.complain(key, f"is {_shown(value)}; allowed: a whole number from {low} to {high}")
            return default
        return value

    def number(self, key: str, default: float, low: float, high: float) -> float:
        """A number in a range."""
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            self.complain(key, f"is {_shown(value)}; allowed: a number from {low:g} to {high:g}")
            return default
        return float(value)

    def size(self, key: str, default: int, also: str = "") -> int:
        """Bytes: a number, or a text such as "600M". Never infinite. `also`: what else the error text offers."""
        value = self.raw(key)
        if value is None:
            return default
        try:
            size = value if _is_count(value) else parse_bytes(value) if isinstance(value, str) else INFINITY
        except ValueError:
            size = INFINITY
        if not isinstance(size, int) or not 0 <= size < 1 << 60:
            self.complain(key, f"is {_shown(value)}; allowed: {also}{_finite(BYTES_HELP)}")
            return default
        return size

    def duration(self, key: str, default: int, low: int, high: int) -> int:
        """Microseconds: a number of seconds, or a text such as "10min"; `high` = INFINITY allows that too."""
        value = self.raw(key)
        if value is None:
            return default
        try:
            text = str(value) if _is_count(value) else value
            duration = parse_duration(text) if isinstance(text, str) else None
        except ValueError:
            duration = None
        if duration is None or not low <= duration <= high:
            help_text = DURATION_HELP if high == INFINITY else _finite(DURATION_HELP)
            span = f"from {format_duration(low)} to {format_duration(high)}"
            self.complain(key, f"is {_shown(value)}; allowed: {help_text}; {span}")
            return default
        return duration

    def texts(self, key: str, complaint: Complaint | None = None) -> tuple[str, ...]:
        """A list of texts; one that is not there is empty."""
        value = self.raw(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.complain(key, f'is {_shown(value)}; allowed: a list of texts, e.g. ["a", "b"]')
            return ()
        found = []
        for index, item in enumerate(value):
            wrong = _wrong_text(item, complaint)
            if wrong:
                self._findings.append(((*self._path, key, index), wrong))
            else:
                found.append(item)
        return tuple(found)

    def pairs(self, key: str, complaint: Callable[[str, str], str]) -> tuple[tuple[str, str], ...]:
        """A table of texts (numbers are taken as text); `complaint` gets each name and value."""
        value = self.raw(key)
        if value is None:
            return ()
        if not isinstance(value, dict):
            self.complain(key, f'is {_shown(value)}; allowed: a table of texts, e.g. {{ name = "value" }}')
            return ()
        found = []
        for name, item in value.items():
            text = str(item) if _is_count(item) else item
            wrong = _wrong_text(text, None) or complaint(name, text)
            if wrong:
                self._findings.append(((*self._path, key, harmless(name, 64)), wrong))
            else:
                found.append((name, text))
        return tuple(found)

    @contextmanager
    def table(self, key: str) -> Iterator["TableReader | None"]:
        """The reader of a table within this one, finished at the end; None when it is missing or no table."""
        value = self.raw(key)
        if value is None:
            yield None
        elif not isinstance(value, dict):
            self.complain(key, f"is {_shown(value)}; allowed: a table")
            yield None
        else:
            reader = TableReader(value, self._findings, (*self._path, key))
            yield reader
            reader.finish()

    def tables(self, key: str) -> Iterator["TableReader"]:
        """The readers of a list of tables, each finished after its turn."""
        value = self.raw(key)
        if value is None:
            return
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.complain(key, f"is {_shown(value)}; allowed: a list of tables, written [[{key}]] in TOML")
            return
        for index, item in enumerate(value):
            reader = TableReader(item, self._findings, (*self._path, key, index))
            yield reader
            reader.finish()


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < INFINITY


def _finite(help_text: str) -> str:
    return re.sub(r', or "infinity"$', "", help_text)


def _wrong_text(value: object, complaint: Complaint | None) -> str:
    if not isinstance(value, str):
        return f"is {_shown(value)}; allowed: a text in quotes"
    if not value.strip() or not value.isprintable():
        return f"is {_shown(value)}; allowed: a text on one line, not empty, without control characters"
    return complaint(value) if complaint else ""


def _shown(value: object) -> str:
    """A value as an error text quotes it."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= 1 << 70:
        return "a very large number"
    return f'"{harmless(value, 64)}"' if isinstance(value, str) else str(value)
