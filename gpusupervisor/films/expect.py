"""What a film says is right: its `expect` lines."""

import json
from collections.abc import Callable, Mapping

from gpusupervisor.films import checks
from gpusupervisor.films.checks import FilmError, Line
from gpusupervisor.films.values import Expectation

STATES = ("absent", "idle", "busy", "claimed", "stirring", "stuck", "unknown")
EXPECTED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(STATES, ()),
    "starved": ("least", "most"),
    "asked": ("first", "for", "pressed-at", "times"),
    "nobody-asked": ("but",),
    "blocked": ("reason", "naming"),
    "reclaimable": ("least", "most"),
    "need": ("least", "most", "source"),
    "learned": ("kind", "least", "most"),
    "unhealthy": ("check", "naming"),
    "journal": ("message", "naming", "least", "most"),
    "reason": ("naming",),
    "refused": ("naming",),
    "outcome": ("is", "freed-least"),
}
"""What may be expected, with the keys that it takes beside `tenant` and times."""
_OF_NOBODY = frozenset({"nobody-asked", "unhealthy", "journal", "outcome", "blocked", "refused"})
_SIZES = ("least", "most", "freed-least")
_HELD_THROUGHOUT = frozenset({*STATES, "starved", "reclaimable", "need", "learned", "blocked", "unhealthy", "reason"})


def read_expectation(table: Mapping[str, object], number: int) -> Expectation:
    """An `expect` line. Raises FilmError."""
    line = Line(table, number)
    written = line.take("expect", checks.text, "")
    wrong = written.startswith("not ")
    what = written.removeprefix("not ")
    if what not in EXPECTED:
        raise line.fault("expect", f'is "{written}"; allowed: {", ".join(EXPECTED)}, each also with "not " before it')
    tenant = line.take("tenant", checks.text, "")
    if not tenant and what not in _OF_NOBODY:
        raise line.fault("tenant", f'is missing: whose "{what}" is expected?')
    line.take("note", checks.text, "")
    since, until, always = _when(line, what, wrong=wrong)
    details = {key: line.take(key, _reader(what, key), None) for key in EXPECTED[what] if line.has(key)}
    for key in EXPECTED[what]:
        line.take(key, lambda value: value, None)
    line.end()
    return Expectation(what, wrong, since, until, always, tenant, details, number, json.dumps(table))


def _when(line: Line, what: str, *, wrong: bool) -> tuple[int, int, bool]:
    """From, until, and whether throughout: "at" is one moment, "from" and "to" throughout, "by" at some moment."""
    if line.has("at"):
        at = line.take("at", checks.time, 0)
        line.take("from", checks.time, 0)
        return at, at, True
    since = line.take("from", checks.time, 0)
    if line.has("by"):
        return since, line.take("by", checks.time, 0), False
    if not line.has("to"):
        raise line.fault("at", "says not when; allowed: at, by, or from and to")
    until = line.take("to", checks.time, 0)
    if until < since:
        raise FilmError(f"line {line.number}: to: is earlier than from")
    return since, until, wrong or what in _HELD_THROUGHOUT or what == "nobody-asked"


def _reader(what: str, key: str) -> Callable[[object], object]:
    if what == "journal" and key in ("least", "most"):
        return checks.whole
    if key in _SIZES:
        return checks.size
    if key == "pressed-at":
        return checks.time
    if key == "times":
        return checks.whole
    return checks.flag if key == "first" else checks.text
