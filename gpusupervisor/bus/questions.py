"""How many questions about callers polkit is asked at the same time: of one user, and of all."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from dbus_fast import DBusError, ErrorType

OF_ONE = 8
"""Questions about one user's calls."""
OF_ONE_WITH_A_PERSON = 2
"""Of those: for which a person is asked, who may never answer."""
IN_ALL_WITH_A_PERSON = 48
IN_ALL = 96
"""Below the 128 answers for which the bus lets one connection wait."""


class Questions:
    """Those that are being asked."""

    def __init__(self) -> None:
        self._of: Counter[int] = Counter()
        self._with_a_person: Counter[int] = Counter()

    @contextmanager
    def asked(self, uid: int, *, person: bool) -> Iterator[None]:
        """While one is asked about a call of a user. Raises LimitsExceeded. person: somebody may have to type."""
        self._check(uid, person=person)
        self._of[uid] += 1
        self._with_a_person[uid] += person
        try:
            yield
        finally:
            self._of -= Counter([uid])  # drops the entry at zero
            self._with_a_person -= Counter([uid] * person)

    def _check(self, uid: int, *, person: bool) -> None:
        if person and self._with_a_person[uid] >= OF_ONE_WITH_A_PERSON:
            _exceeded(
                f"{OF_ONE_WITH_A_PERSON} calls of user {uid} wait for a password: answer or cancel one of them first"
            )
        if self._of[uid] >= OF_ONE:
            _exceeded(f"polkit is being asked about {OF_ONE} calls of user {uid}: wait for one of them to return")
        if person and self._with_a_person.total() >= IN_ALL_WITH_A_PERSON:
            _exceeded(f"{IN_ALL_WITH_A_PERSON} calls of all users wait for a password: try again in a minute")
        if self._of.total() >= IN_ALL:
            _exceeded(f"polkit is being asked about {IN_ALL} calls of all users: try again in 5 s")


def _exceeded(text: str) -> None:
    raise DBusError(ErrorType.LIMITS_EXCEEDED, text)
