"""Probe `ollama`.

Ollama has no field that says "works". What it has: /api/ps, whose `expires_at` is set when a request ends, so that it
tells of work that has ended; the runner's own /slots (a llama-server since 0.30), which knows; and, for older runners,
the quiet of its processes.
"""

import asyncio
from collections.abc import Sequence
from typing import Literal

from gpusupervisor.engine_http import BadAnswer, HttpError, Unreachable
from gpusupervisor.foreign_text import harmless
from gpusupervisor.processes.identity import ProcessKey
from gpusupervisor.tenants.activity.probes.base import ProbeContext, ask, unanswered
from gpusupervisor.tenants.activity.probes.ollama_answers import (
    LoadedModel,
    any_slot_processing,
    local_models,
    runner_ports,
    version_of,
)
from gpusupervisor.tenants.activity.verdict import Observation, Placement
from gpusupervisor.tenants.census import TenantPresence
from gpusupervisor.tenants.definition import ProbeSpec

QUIET_WINDOW = 10_000_000
"""Microseconds of quiet that count as idle where no runner tells, unless the definition says otherwise."""
MAX_RUNNERS = 8
SLOTS_TIMEOUT = 1_000_000

Runner = Literal["works", "loads", "idle", "silent"]


class OllamaProbe:
    """Idle only with evidence: nothing loaded, or idle runners, or processes that are seen to be quiet."""

    kind = "ollama"

    def __init__(self, spec: ProbeSpec) -> None:
        self.timeout = 2 * spec.timeout + SLOTS_TIMEOUT
        self._request_timeout = spec.timeout
        self._window = spec.idle_after or QUIET_WINDOW
        self._version = ""
        self._servers: frozenset[ProcessKey] = frozenset()
        """The processes that the version is of."""
        self._expiries: dict[str, int] = {}

    async def observe(self, context: ProbeContext) -> Observation:
        """See `Probe`."""
        servers = frozenset(server.key for server in context.presence.servers)
        if servers and servers != self._servers:
            self._version, self._servers = "", servers
        try:
            models = local_models(await ask(context, "/api/ps", self._request_timeout))
        except HttpError as error:
            if isinstance(error, Unreachable):
                self._version = ""
                self._expiries.clear()
            return unanswered(self.kind, error, context)
        if not self._version:
            self._version = await self._ask_version(context)
        runners = await self._ask_runners(context) if models else ()
        state, reason = self._judge(models, runners, context)
        if models and state != "unknown" and any(model.spilled for model in models):
            reason += "; part of it did not fit into VRAM"
        ghosts = _are_ghosts(models, context.presence)
        if ghosts:
            reason += f"; Ollama lists {_names(models)}, but no process of it holds VRAM: its runner has ended"
        self._expiries = {model.name: model.expires_at for model in models}
        return Observation(
            self.kind,
            state,
            reason,
            context.now,
            pinned=any(model.pinned for model in models),
            version=self._version,
            placement=_placement(models) if models and not ghosts else None,
        )

    def _judge(
        self, models: Sequence[LoadedModel], runners: Sequence[Runner], context: ProbeContext
    ) -> tuple[Literal["idle", "busy", "stirring", "unknown"], str]:
        if not models:
            return "idle", "no model is loaded"
        names = _names(models)
        if "works" in runners:
            return "busy", f"a request is running on {names}"
        if "loads" in runners:
            return "busy", f"{names} is being loaded"
        quiet = self._quiet(models, context)
        # Quiet ones have only outlived it by the wall clock, which goes on while the machine is suspended; Ollama's
        # timer does not.
        if not quiet and any(model.expires_at <= context.realtime for model in models):
            return "stirring", f"{names} is loaded past its keep-alive: generating, or stopping"
        if any(model.expires_at > self._expiries.get(model.name, model.expires_at) for model in models):
            return "stirring", f"{names} was used or loaded a moment ago"
        if runners.count("idle") >= max(1, sum(model.size_vram > 0 for model in models)):
            return "idle", f"{names} is loaded and no request is running"
        if quiet:
            return "idle", f"{names} is loaded, was not used, and its processes are quiet"
        return "unknown", f"{names} is loaded, but it is not known yet whether it is working"

    def _quiet(self, models: Sequence[LoadedModel], context: ProbeContext) -> bool:
        """Whether models seen before went unused while GPU or CPU time was watched and stayed quiet."""
        seen_before = all(model.name in self._expiries for model in models)
        lively = context.now - context.signs.live_at < self._window
        return seen_before and not lively and context.signs.quiet_span >= self._window

    async def _ask_version(self, context: ProbeContext) -> str:
        try:
            return version_of(await ask(context, "/api/version", self._request_timeout))
        except HttpError:
            return ""

    async def _ask_runners(self, context: ProbeContext) -> Sequence[Runner]:
        ports = runner_ports(context.presence.holders)[:MAX_RUNNERS]
        return await asyncio.gather(*(_ask_runner(context, port) for port in ports))


def _placement(models: Sequence[LoadedModel]) -> Placement:
    return Placement(sum(model.size for model in models), sum(model.size_vram for model in models))


def _are_ghosts(models: Sequence[LoadedModel], presence: TenantPresence) -> bool:
    """Whether Ollama lists models of which nothing is left: it does not notice that an idle runner was killed."""
    placed = sum(model.size_vram for model in models)
    return placed > 0 and bool(presence.servers) and not presence.holders and not presence.unknown_on


async def _ask_runner(context: ProbeContext, port: int) -> Runner:
    """A runner that cannot tell is `silent`: older ones have no /slots."""
    try:
        answer = await context.http.get(
            f"http://127.0.0.1:{port}", "/slots", timeout=SLOTS_TIMEOUT, peer=context.presence.peer
        )
        if answer.status == 503:  # llama-server's "Loading model"
            return "loads"
        if not answer.ok:
            raise BadAnswer("has no slots")
        return "works" if any_slot_processing(answer.json()) else "idle"
    except HttpError:
        return "silent"


def _names(models: Sequence[LoadedModel]) -> str:
    first = harmless(models[0].name, 60)
    return first if len(models) == 1 else f"{first} (and {len(models) - 1} more)"
