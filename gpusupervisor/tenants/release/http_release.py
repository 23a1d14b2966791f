"""Asking a tenant over its own HTTP API to give its VRAM back.

What it answers is never taken for the release itself: the caller measures.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, urlencode

from gpusupervisor.engine_http import Answer, BadAnswer, EngineHttp, HttpError, TimedOut, Unreachable, is_local
from gpusupervisor.foreign_text import harmless
from gpusupervisor.tenants.definition import ForEach, ReleaseMethod, VersionRequirement
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


@dataclass(frozen=True, slots=True)
class ReleaseAnswer:
    """What came of asking. `accepted` says that something was promised, not that anything was freed."""

    accepted: bool
    outcome: ReleaseOutcome
    detail: str
    """One sentence for a person."""
    items: tuple[ItemAnswer, ...] = ()


class _Refused(Exception):  # noqa: N818
    """The method must not be used now; the text says why."""


async def request_release(method: ReleaseMethod, endpoint: str, http: EngineHttp) -> ReleaseAnswer:
    """Send the request of `method`, for every item where there is a list of them. Never raises for what the
    tenant does."""
    try:
        _check(method, endpoint)
        if method.version:
            await _require_version(method.version, endpoint, http, method.timeout)
        items = await _items(method.for_each, endpoint, http, method.timeout) if method.for_each else ("",)
    except _Refused as refusal:
        return ReleaseAnswer(False, "refused", str(refusal))
    except HttpError as error:
        return ReleaseAnswer(False, "failed", f"it was not asked: {error}")
    if not items:
        return ReleaseAnswer(False, "nothing-to-release", "it has nothing loaded that could be released")
    return _sum_up(await _send_all(method, items, endpoint, http))


def _check(method: ReleaseMethod, endpoint: str) -> None:
    if endpoint and not is_local(endpoint):
        raise _Refused("its endpoint is on another machine, whose VRAM is not ours to release")
    if isinstance(method.json, dict) and (works := RUNS_WORK & method.json.keys()):
        raise _Refused(f"the request of its release has {sorted(works)[0]!r} in it, which would start work")


async def _require_version(
    requirement: VersionRequirement,
    endpoint: str,
    http: EngineHttp,
    timeout: int,  # noqa: ASYNC109
) -> None:
    version = query(requirement.value, _json(await http.get(endpoint, requirement.get, timeout=timeout)))
    shown = harmless(version, 40) if isinstance(version, str) else "an unknown version"
    new_enough = at_least(version, requirement.minimum) if isinstance(version, str) else None
    if not new_enough:
        raise _Refused(
            f"its version is {shown}; this release needs {requirement.minimum} or later, older ones misbehave"
        )


async def _items(
    for_each: ForEach,
    endpoint: str,
    http: EngineHttp,
    timeout: int,  # noqa: ASYNC109
) -> Sequence[str]:
    found = query(for_each.items, _json(await http.get(endpoint, for_each.get, timeout=timeout)))
    if not isinstance(found, list) or len(found) > MAX_ITEMS:
        raise BadAnswer("answered without a usable list of what is loaded")
    items = [str(item) for item in found if isinstance(item, str | int) and not isinstance(item, bool)]
    if len(items) != len(found) or any(not 0 < len(item) <= MAX_ITEM_LENGTH for item in items):
        raise BadAnswer("answered a list of what is loaded with entries that cannot be asked for")
    return tuple(dict.fromkeys(items))


def _json(answer: Answer) -> object:
    if not answer.ok:
        raise BadAnswer(f"answered with status {answer.status}")
    return answer.json()


async def _send_all(
    method: ReleaseMethod, items: Sequence[str], endpoint: str, http: EngineHttp
) -> tuple[ItemAnswer, ...]:
    """One after the other; an engine that no longer answers is not asked for the rest."""
    answers: list[ItemAnswer] = []
    for item in items:
        if answers and answers[-1].outcome == "failed":
            answers.append(ItemAnswer(item, "failed", "not asked any more"))
            continue
        answers.append(await _send(method, item, endpoint, http))
    return tuple(answers)


async def _send(method: ReleaseMethod, item: str, endpoint: str, http: EngineHttp) -> ItemAnswer:
    path = method.path.replace(PLACEHOLDER, quote(item, safe=""))
    if method.query:
        path += ("&" if "?" in path else "?") + urlencode(
            [(name, value.replace(PLACEHOLDER, item)) for name, value in method.query]
        )
    body, headers = None, method.headers
    if method.json is not None:
        body = json.dumps(_filled(method.json, item)).encode()
        headers = (("Content-Type", "application/json"), *headers)
    try:
        answer = await http.request(method.verb, endpoint, path, timeout=method.timeout, body=body, headers=headers)
        return _read(method, item, answer)
    except (Unreachable, TimedOut) as error:
        return ItemAnswer(item, "failed", str(error))
    except HttpError as error:
        return ItemAnswer(item, "refused", str(error))


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
        said = harmless(answer.body.decode(errors="replace"))
        return ItemAnswer(item, "refused", f"answered with status {answer.status}" + (f": {said}" if said else ""))
    if method.success_when and query(method.success_when, answer.json()) is not True:
        said = harmless(answer.body.decode(errors="replace"))
        return ItemAnswer(item, "refused", f"answered something else than success: {said}")
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
