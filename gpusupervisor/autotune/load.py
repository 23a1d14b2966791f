"""Loads that engines can do: a fixed number of tokens from a fixed prompt and seed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from gpusupervisor.autotune.curve import Work
from gpusupervisor.autotune.run import Load, Stopped
from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.engine_http import NO_USERS, Answer, EngineHttp, HttpError, Peer
from gpusupervisor.errors import InvalidArgument, NotSupported
from gpusupervisor.foreign_text import harmless

MOST_TOKENS = 4096
PROMPT = "A very long list of the whole numbers, written out in words, one after the other: one, two, three, four,"
SEED = 1
LOADING = 300 * MICROSECONDS
"""A large model from a slow disk."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an engine is, and what must be at the other end."""

    endpoint: str
    peer: Peer = NO_USERS


def load_for(engine: str, http: EngineHttp, clock: Clock, place: Place, model: str, tokens: int) -> Load:
    """The load of an engine. model: its name in Ollama; llama.cpp has the one it was started with.

    Raises NotSupported for an engine that has none, InvalidArgument.
    """
    if not 1 <= tokens <= MOST_TOKENS:
        raise InvalidArgument(f"The load may have 1 to {MOST_TOKENS} tokens, not {tokens}")
    if engine == "ollama":
        if not model:
            raise InvalidArgument("Ollama needs the name of the model to run: give one that it has")
        return OllamaLoad(http, clock, place, model, tokens)
    if engine == "llama.cpp":
        return LlamaCppLoad(http, clock, place, tokens)
    raise NotSupported(f"There is no benchmark for the engine {harmless(engine)!r}, only for ollama and llama.cpp")


class _Tokens:
    """What both have in common: asking, and how refusals read."""

    unit = "token"

    def __init__(self, name: str, http: EngineHttp, clock: Clock, place: Place, tokens: int) -> None:
        self._name = name
        self._http = http
        self._clock = clock
        self._place = place
        self._tokens = tokens

    async def _first(self, verb: str, path: str, body: Mapping[str, object] | None = None) -> None:
        """Ask for what must work before anything is measured. Raises NotSupported."""
        try:
            answer = await self._ask(verb, path, body, LOADING)
        except HttpError as error:
            raise NotSupported(f"{self._name} cannot run the benchmark: it {error}") from error
        if not answer.ok:
            raise NotSupported(f"{self._name} cannot run the benchmark: it answers {_refusal(answer)}")

    async def _generate(self, path: str, body: Mapping[str, object], timeout: int) -> tuple[Mapping[str, object], int]:  # noqa: ASYNC109
        """The answer and the microseconds that it took. Raises Stopped."""
        begun = self._clock.now()
        try:
            answer = await self._ask("POST", path, body, timeout)
            told = answer.json() if answer.ok else None
        except HttpError as error:
            raise Stopped(f"The sweep was stopped: {self._name} {error}") from error
        if not isinstance(told, dict):
            raise Stopped(f"The sweep was stopped: {self._name} answered {_refusal(answer)}")
        return told, self._clock.now() - begun

    async def _ask(self, verb: str, path: str, body: Mapping[str, object] | None, timeout: int) -> Answer:  # noqa: ASYNC109
        data = None if body is None else json.dumps(body).encode()
        headers = [("Content-Type", "application/json")] if data else []
        place = self._place
        return await self._http.request(
            verb, place.endpoint, path, timeout=timeout, body=data, headers=headers, peer=place.peer
        )

    def _work(self, units: object, duration: int | None, took: int) -> Work:
        """duration: microseconds by the engine's own count; None: as long as the whole exchange took."""
        if type(units) is not int or not self._tokens // 2 <= units <= 2 * self._tokens or not units:
            raise Stopped(f"The sweep was stopped: {self._name} did not make the {self._tokens} tokens asked of it")
        return Work(units, took if duration is None or not 0 < duration <= took else duration)


class OllamaLoad(_Tokens):
    """Ollama's /api/generate, without the chat template, after which models end sooner.

    `keep_alive` is not sent: it would change how long the user's model stays.
    """

    def __init__(self, http: EngineHttp, clock: Clock, place: Place, model: str, tokens: int) -> None:
        super().__init__("Ollama", http, clock, place, tokens)
        self._model = model

    async def prepare(self) -> None:
        """Load the model. Raises NotSupported."""
        await self._first("POST", "/api/generate", {"model": self._model, "stream": False})

    async def run(self, timeout: int) -> Work:  # noqa: ASYNC109
        """See `Load`."""
        options = {"num_predict": self._tokens, "seed": SEED, "temperature": 0}
        body = {"model": self._model, "prompt": PROMPT, "raw": True, "stream": False, "options": options}
        told, took = await self._generate("/api/generate", body, timeout)
        return self._work(told.get("eval_count"), _microseconds(told.get("eval_duration"), 1e-3), took)


class LlamaCppLoad(_Tokens):
    """llama-server's own /completion."""

    def __init__(self, http: EngineHttp, clock: Clock, place: Place, tokens: int) -> None:
        super().__init__("llama.cpp", http, clock, place, tokens)

    async def prepare(self) -> None:
        """Its model is loaded when it is healthy. Raises NotSupported."""
        await self._first("GET", "/health")

    async def run(self, timeout: int) -> Work:  # noqa: ASYNC109
        """See `Load`."""
        body = {"prompt": PROMPT, "n_predict": self._tokens, "seed": SEED, "temperature": 0, "ignore_eos": True}
        told, took = await self._generate("/completion", {**body, "cache_prompt": False, "stream": False}, timeout)
        timings = told.get("timings")
        spent = timings.get("predicted_ms") if isinstance(timings, dict) else None
        return self._work(told.get("tokens_predicted"), _microseconds(spent, 1e3), took)


def _microseconds(value: object, scale: float) -> int | None:
    return round(value * scale) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _refusal(answer: Answer) -> str:
    """A refusal in one line: the status, and the engine's own words where it has some."""
    said = answer.words()
    return f"HTTP {answer.status}" + (f": {said}" if said else "")
