"""How adapters ask an engine: bounded in time and size, and whatever it answers is a value, never an exception."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from gpusupervisor.engine_http import NO_USERS, Answer, BadAnswer, EngineHttp, HttpError, Peer
from gpusupervisor.engine_http.keys import Header
from gpusupervisor.engines.model_apis.listing import Reply
from gpusupervisor.foreign_text import harmless

TIMEOUT = 3_000_000
"""Microseconds for one passive look."""
ACTION_TIMEOUT = 30_000_000
"""Microseconds for a request that should be answered at once."""
LOAD_TIMEOUT = 900_000_000
"""Microseconds for a load that is answered when it is done: a large model from a slow disk."""
LARGEST = 8 << 20
"""Bytes of a list of models: some engines tell of each model how it is started."""
MOST_MODELS = 4096
LONGEST_NAME = 512
"""Characters of a model's name, which may be a path."""
_PARSED_ASIDE = 64 << 10
"""Bytes of JSON from which on it is parsed in another thread."""

_OUT_OF_MEMORY = re.compile(
    r"out of memory|outofmemory|unable to allocate|failed to allocate|cudamalloc failed|requires more (system )?memory"
    r"|(insufficient|not enough|no available) (gpu |video |system |device )?(memory|vram)|erroroutofdevicememory",
    re.IGNORECASE,
)
"""Ollama: "cudaMalloc failed: out of memory", "unable to allocate CUDA0 buffer", "model requires more system memory
(9.1 GiB) than is available"; llama.cpp: "failed to allocate buffer for kv cache", ErrorOutOfDeviceMemory (Vulkan);
PyTorch: "CUDA out of memory", OutOfMemoryError; vLLM: "No available memory for the cache blocks"."""
_FAILURE = re.compile(rb'^(?:data: ?)?(\{"(?:error"|success": ?false).*)', re.MULTILINE)
"""With status 200: TabbyAPI tells a load's progress as events, and its failure as the last of them; KoboldCpp answers
{"success": false} to whoever may not ask."""


@dataclass(frozen=True, slots=True)
class Door:
    """Where one engine is asked."""

    http: EngineHttp
    endpoint: str
    headers: tuple[Header, ...] = ()
    """Sent with everything: its keys."""
    peer: Peer = NO_USERS
    """What must be at the other end."""
    off: frozenset[str] = frozenset()
    """Its settings that are known to be off."""

    async def get(self, path: str) -> Answer:
        """A passive look. Raises HttpError."""
        return await self.http.request(
            "GET", self.endpoint, path, timeout=TIMEOUT, headers=self.headers, remote=True, largest=LARGEST,
            peer=self.peer,
        )  # fmt: skip

    async def order(self, verb: str, path: str, body: object = None, *, timeout: int = ACTION_TIMEOUT) -> Reply:  # noqa: ASYNC109
        """Send what changes something, on this machine only. Never raises for what the engine does."""
        data = None if body is None else json.dumps(body).encode()
        headers = self.headers if body is None else (("Content-Type", "application/json"), *self.headers)
        try:
            answer = await self.http.request(
                verb, self.endpoint, path, timeout=timeout, body=data, headers=headers, peer=self.peer
            )
        except HttpError as error:
            return Reply("failed", f"it {error}")
        failure = _FAILURE.search(answer.body)
        if answer.ok and failure is not None:
            return refusal(replace(answer, body=failure[1]))
        return Reply("done") if answer.ok else refusal(answer)


def refusal(answer: Answer) -> Reply:
    """What an answer that is no success means."""
    said = answer.words()
    if _OUT_OF_MEMORY.search(answer.body[:4096].decode(errors="replace")):
        return Reply("out-of-memory", said)
    if answer.status in (401, 403):
        return Reply("refused", "it wants a key for that: name its file in the tenant file, under [endpoint.headers]")
    outcome: Literal["refused", "failed"] = "refused" if answer.status < 500 else "failed"
    return Reply(outcome, f"it answered with status {answer.status}" + (f": {said}" if said else ""))


@dataclass(slots=True)
class Reading:
    """One look at an engine: gathers what could not be learned."""

    door: Door
    problems: list[str] = field(default_factory=list)
    status: int = 0
    """Of the last answer; 0 when there was none."""

    async def get(self, path: str, what: str, *, absent: Sequence[int] = ()) -> object:
        """The JSON at a path; None, and noted that `what` is unknown, when there is none.

        absent: statuses that say that the path is not there, which is no problem.
        """
        self.status = 0
        try:
            answer = await self.door.get(path)
            self.status = answer.status
            if answer.status in absent:
                return None
            if answer.status in (401, 403):
                raise BadAnswer("wants a key: name its file in the tenant file, under [endpoint.headers]")
            if not answer.ok:
                raise BadAnswer(f"answered {harmless(path, 60)} with status {answer.status}")
            parsed = await asyncio.to_thread(answer.json) if len(answer.body) > _PARSED_ASIDE else answer.json()
            if parsed is None:
                raise BadAnswer(f"answered {harmless(path, 60)} with null")
        except HttpError as error:
            self.note(what, f"its API {error}")
            return None
        return parsed

    def note(self, what: str, why: str) -> None:
        """Something is unknown."""
        self.problems.append(f"{what} is unknown: {why}")

    def entries(self, answer: object, key: str, what: str) -> Iterator[Mapping[str, object]]:
        """The objects of a list in an answer (key "": the answer is the list); others are noted and passed over."""
        if answer is None:
            return
        found = answer.get(key) if key and isinstance(answer, dict) else answer
        if not isinstance(found, list):
            self.note(what, "its API answered in another shape")
            return
        if len(found) > MOST_MODELS:
            self.note(what, f"its API told of more than {MOST_MODELS}, and the rest was left out")
        good = [entry for entry in found[:MOST_MODELS] if isinstance(entry, dict)]
        if len(good) < min(len(found), MOST_MODELS):
            self.note(what, "some entries cannot be read, and were left out")
        yield from good

    def names(self, answer: object, key: str, what: str) -> tuple[str, ...]:
        """The texts of a list in an answer, each once."""
        if answer is None:
            return ()
        found = answer.get(key) if key and isinstance(answer, dict) else answer
        if not isinstance(found, list):
            self.note(what, "its API answered in another shape")
            return ()
        named = [name for entry in found[:MOST_MODELS] if (name := name_of(entry))]
        if len(named) < len(found):
            self.note(what, "some entries cannot be read, and were left out")
        return tuple(dict.fromkeys(named))

    async def openai_names(self, what: str = "which models there are") -> tuple[str, ...]:
        """The ids of /v1/models, each once."""
        entries = list(self.entries(await self.get("/v1/models", what), "data", what))
        named = [name for entry in entries if (name := name_of(entry.get("id")))]
        if len(named) < len(entries):
            self.note(what, "some entries cannot be read, and were left out")
        return tuple(dict.fromkeys(named))


def name_of(value: object) -> str:
    """A model's name that can be shown and asked for; empty for anything else."""
    if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable() and value == value.strip():
        return value
    return ""


def count(value: object) -> int | None:
    """Bytes; None for anything that cannot be."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 60 else None
