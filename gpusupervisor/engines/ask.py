"""Asking an engine's own API what it is set to: passive questions, one deadline, and no answer is no harm."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.engine_http import NO_USERS, BadAnswer, EngineHttp, Header, HttpError, Peer
from gpusupervisor.engines.interpret import ApiFacts
from gpusupervisor.engines.table import Call, Known, Table
from gpusupervisor.foreign_text import harmless
from gpusupervisor.tenants.json_query import query
from gpusupervisor.unit_environment import Given

TIMEOUT = 3 * MICROSECONDS
LONGEST_VERSION = 64
LONGEST_VALUE = 256


async def ask(
    table: Table, endpoint: str, http: EngineHttp, headers: Sequence[Header] = (), peer: Peer = NO_USERS
) -> ApiFacts | None:
    """What the engine tells; None when none of the questions was answered in a usable way."""
    answers = await asyncio.gather(*(_answer(call, endpoint, http, headers, peer) for call in table.calls))
    if all(answer is None for _, answer in answers):
        return None
    by_name = {known.name: known for known in table.settings}
    version = ""
    told: dict[str, Given] = {}
    for call, answer in answers:
        if answer is not None:
            version = version or _version(call, answer)
            told |= dict(_told(call, answer, by_name))
    return ApiFacts(version, told)


async def _answer(
    call: Call, endpoint: str, http: EngineHttp, headers: Sequence[Header], peer: Peer
) -> tuple[Call, object]:
    """The question as it was answered, and the JSON of a 2xx answer; None for anything else."""
    try:
        answer = await http.get(endpoint, call.path, timeout=TIMEOUT, headers=headers, peer=peer)
        if call.older and answer.status == 404:
            return await _answer(replace(call, path=call.older, older=""), endpoint, http, headers, peer)
        return call, answer.json() if answer.ok else None
    except HttpError:
        return call, None


def _version(call: Call, answer: object) -> str:
    found = _find(call.version, answer) if call.version else None
    return harmless(found, LONGEST_VERSION) if isinstance(found, str) else ""


def _told(call: Call, answer: object, by_name: dict[str, Known]) -> Iterator[tuple[str, Given]]:
    """The settings in an answer. What is false, null, a list or an object gives nothing away."""
    for name, path in call.tells:
        text = _text(_find(path, answer))
        value = by_name[name].of_answer(text) if text is not None else ""
        if value or text == "":
            yield name, Given(value[:LONGEST_VALUE], call.path)


def _find(path: str, answer: object) -> object:
    try:
        return query(path, answer)
    except BadAnswer:
        return None


def _text(value: object) -> str | None:
    """A scalar as a command line would have it; a switch that is on or off as its word."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value) if isinstance(value, str | int | float) else None
