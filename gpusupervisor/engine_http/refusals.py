"""Which questions a server refused lately: it is asked them again after pauses that grow, not at every look."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from gpusupervisor.engine_http.answer import Answer

REFUSALS = frozenset({401, 403, 407, 429})
"""HTTP statuses that asking again changes nothing about: a key is missing, or it is asked too often."""
FIRST_PAUSE = 30.0
"""Seconds after the first refusal; each further one in a row doubles them."""
LONGEST_PAUSE = 300.0
MOST = 256
"""Refusals that are remembered."""

Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Refusal:
    answer: Answer
    until: float
    times: int
    """In a row."""


class Refusals:
    """What was refused, by address, path and what was sent with the question. Seconds of the event loop's clock.

    A key counts by its digest, so that another key in the same file is tried at once and none is kept in memory.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, bytes], _Refusal] = {}

    def remembered(self, base: str, path: str, headers: Headers, now: float) -> Answer | None:
        """Return the answer that stands for another request; None if the server may be asked."""
        refusal = self._known.get((base, path, _digest(headers)))
        return refusal.answer if refusal is not None and now < refusal.until else None

    def note(self, base: str, path: str, headers: Headers, answer: Answer, now: float) -> None:
        """Note what a server answered."""
        question = (base, path, _digest(headers))
        before = self._known.pop(question, None)
        if answer.status not in REFUSALS:
            return
        times = before.times if before is not None else 0
        if len(self._known) >= MOST:
            del self._known[next(iter(self._known))]
        pause = min(FIRST_PAUSE * 2 ** min(times, 16), LONGEST_PAUSE)
        self._known[question] = _Refusal(answer, now + pause, times + 1)

    def forget(self, base: str) -> None:
        """Forget what the server at an address refused: it is another one, or somebody has repaired it."""
        for question in [each for each in self._known if each[0] == base]:
            del self._known[question]


def _digest(headers: Headers) -> bytes:
    return hashlib.sha256(repr(list(headers)).encode()).digest()
