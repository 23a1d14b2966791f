"""Asking a tenant over its own HTTP API to give its VRAM back.

What it answers is never taken for the release itself: the caller measures.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, urlencode

from gpusupervisor.engine_http import (
    NO_USERS,
    Answer,
    BadAnswer,
    BadCertificate,
    EngineHttp,
    ForeignSocket,
    Header,
    HttpError,
    NoRoute,
    NotAllowed,
    Peer,
    Unreachable,
    has_key,
    is_local,
)
from gpusupervisor.foreign_text import harmless
from gpusupervisor.tenants.definition import Condition, ReleaseMethod, VersionRequirement
from gpusupervisor.tenants.json_query import query
from gpusupervisor.tenants.release.versions import at_least

ReleaseOutcome = Literal["accepted", "refused", "failed", "nothing-to-release"]
MAX_ITEMS = 32
MAX_ITEM_LENGTH = 512
PLACEHOLDER = "{item}"
RUNS_WORK = frozenset({"prompt", "messages"})
"""Keys of a body that make an engine work first (Ollama runs the prompt and unloads afterwards)."""


@dataclass(frozen=True, slots=True)
class ItemAnswer:
    """What was answered for one item of the list (or for the only request, whose item is empty)."""

    item: str
    outcome: Literal["accepted", "refused", "failed"]
    detail: str
    was_sent: bool = True
    """Whether the engine may have heard the request, whatever became of its answer."""


@dataclass(frozen=True, slots=True)
class ReleaseAnswer:
    """What came of asking. `accepted` says that something was promised, not that anything was freed."""

    accepted: bool
    outcome: ReleaseOutcome
    detail: str
    """One sentence for a person."""
    items: tuple[ItemAnswer, ...] = ()

    @property
    def was_heard(self) -> bool:
        """Whether the engine may be carrying the request out, although its answer says nothing."""
        return self.outcome == "failed" and any(item.outcome == "failed" and item.was_sent for item in self.items)


class _Refused(Exception):  # noqa: N818
    """The method must not be used now; the text says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tenant is asked."""

    endpoint: str
    headers: tuple[Header, ...] = ()
    """What goes with every request."""
    takes_keys: bool = True
    """The address is the one that a file names: keys may be sent there."""
    peer: Peer = NO_USERS
    """What must be at the other end."""


async def request_release(method: ReleaseMethod, place: Place, http: EngineHttp) -> ReleaseAnswer:
    """Send the request of `method`, for every item where there is a list of them. Never raises for what the
    tenant does."""
    asking = _Asking(method, place, http)
    try:
        asking.check()
        if method.version:
            await asking.require_version(method.version)
        if method.only_if:
            await asking.require(method.only_if)
        items = await asking.items()
    except _Refused as refusal:
        return ReleaseAnswer(False, "refused", str(refusal))
    except HttpError as error:
        return ReleaseAnswer(False, "failed", f"it was not asked: {error}")
    if not items:
        return ReleaseAnswer(False, "nothing-to-release", "it has nothing loaded that could be released")
    return _sum_up(await asking.send_all(items))


@dataclass(frozen=True, slots=True)
class _Asking:
    """One use of a method at a place."""

    method: ReleaseMethod
    place: Place
    http: EngineHttp

    def check(self) -> None:
        """Raises _Refused where nothing may be sent."""
        if self.place.endpoint and not is_local(self.place.endpoint):
            raise _Refused("its endpoint is on another machine, whose VRAM is not managed here")
        body = self.method.json
        if isinstance(body, dict) and (works := RUNS_WORK & body.keys()):
            raise _Refused(f"the request of its release has {sorted(works)[0]!r} in it, which would start work")
        if has_key(self.method.headers) and not self.place.takes_keys:
            raise _Refused("its key is not sent to an address that was only found on its process: set url beside it")

    async def require_version(self, requirement: VersionRequirement) -> None:
        """Raises _Refused for an older engine, HttpError."""
        version = query(requirement.value, await self._get(requirement.get))
        shown = harmless(version, 40) if isinstance(version, str) else "an unknown version"
        # One that cannot be compared ("0.0.0", "nightly") is somebody's own build, which is not old.
        new_enough = at_least(version, requirement.minimum) is not False if isinstance(version, str) else False
        if not new_enough:
            raise _Refused(
                f"its version is {shown}; this release needs {requirement.minimum} or later, older ones misbehave"
            )

    async def require(self, condition: Condition) -> None:
        """Raises _Refused when the engine is not set up for it, HttpError."""
        if query(condition.when, await self._get(condition.get)) is not True:
            raise _Refused(f"it is not configured for this release: {harmless(condition.when)} is not true")

    async def items(self) -> Sequence[str]:
        """What is to be asked for, one by one; a single empty item where there is no list. Raises HttpError."""
        each = self.method.for_each
        if each is None:
            return ("",)
        found = query(each.items, await self._get(each.get))
        if not isinstance(found, list) or len(found) > MAX_ITEMS:
            raise BadAnswer("answered without a usable list of what is loaded")
        items = [str(item) for item in found if isinstance(item, str | int) and not isinstance(item, bool)]
        if len(items) != len(found) or any(not 0 < len(item) <= MAX_ITEM_LENGTH for item in items):
            raise BadAnswer("answered a list of what is loaded with entries that cannot be asked for")
        return tuple(dict.fromkeys(items))

    async def send_all(self, items: Sequence[str]) -> tuple[ItemAnswer, ...]:
        """One after the other; an engine that no longer answers is not asked for the rest."""
        answers: list[ItemAnswer] = []
        for item in items:
            if answers and answers[-1].outcome == "failed":
                answers.append(ItemAnswer(item, "failed", "no longer asked", was_sent=False))
                continue
            answers.append(await self._send(item))
        return tuple(answers)

    async def _get(self, path: str) -> object:
        """JSON. Raises HttpError."""
        headers = (*self.place.headers, *self.method.headers)
        place, timeout = self.place, self.method.timeout
        return _json(await self.http.get(place.endpoint, path, timeout=timeout, headers=headers, peer=place.peer))

    async def _send(self, item: str) -> ItemAnswer:
        method = self.method
        path = method.path.replace(PLACEHOLDER, quote(item, safe=""))
        if method.query:
            path += ("&" if "?" in path else "?") + urlencode(
                [(name, value.replace(PLACEHOLDER, item)) for name, value in method.query]
            )
        headers = (*self.place.headers, *(_filled_header(header, item) for header in method.headers))
        body = None
        if method.json is not None:
            body = json.dumps(_filled(method.json, item)).encode()
            headers = (("Content-Type", "application/json"), *headers)
        try:
            answer = await self.http.request(
                method.verb, self.place.endpoint, path, timeout=method.timeout, body=body, headers=headers,
                peer=self.place.peer,
            )  # fmt: skip
            return _read(method, item, answer)
        except (Unreachable, NoRoute) as error:
            return ItemAnswer(item, "failed", str(error), was_sent=False)
        except (NotAllowed, ForeignSocket, BadCertificate) as error:
            return ItemAnswer(item, "refused", str(error), was_sent=False)
        except HttpError as error:  # lost, cut off or malformed: only the measurement tells what came of it
            return ItemAnswer(item, "failed", str(error))


def _json(answer: Answer) -> object:
    if not answer.ok:
        raise BadAnswer(f"answered with status {answer.status}")
    return answer.json()


def _filled_header(header: Header, item: str) -> Header:
    name, value = header
    return (name, value.replace(PLACEHOLDER, item)) if isinstance(value, str) else header


def _filled(value: object, item: str) -> object:
    """The body with the item in every string that asks for it."""
    if isinstance(value, str):
        return value.replace(PLACEHOLDER, item)
    if isinstance(value, dict):
        return {key: _filled(inner, item) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(inner, item) for inner in value]
    return value


def _read(method: ReleaseMethod, item: str, answer: Answer) -> ItemAnswer:
    if not answer.ok:
        said = answer.words()
        return ItemAnswer(item, "refused", f"answered with status {answer.status}" + (f": {said}" if said else ""))
    if method.success_when and query(method.success_when, answer.json()) is not True:
        said = harmless(answer.body.decode(errors="replace"))
        return ItemAnswer(item, "refused", f"did not report success: {said}")
    return ItemAnswer(item, "accepted", "accepted")


def _sum_up(answers: Sequence[ItemAnswer]) -> ReleaseAnswer:
    """Accepted when anything was; the detail says what was not."""
    accepted = sum(answer.outcome == "accepted" for answer in answers)
    wrong = next((answer for answer in answers if answer.outcome != "accepted"), None)
    if wrong is None:
        detail = "it accepted the request" if accepted == 1 else f"it accepted all {accepted} requests"
        return ReleaseAnswer(True, "accepted", detail, tuple(answers))
    name = f"{harmless(wrong.item, 60)}: " if wrong.item else ""
    if accepted:
        detail = f"it accepted {accepted} of {len(answers)} requests; {name}{wrong.detail}"
        return ReleaseAnswer(True, "accepted", detail, tuple(answers))
    return ReleaseAnswer(False, wrong.outcome, f"{name}{wrong.detail}", tuple(answers))
