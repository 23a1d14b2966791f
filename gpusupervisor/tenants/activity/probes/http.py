"""Probe `http`: a JMESPath expression over JSON that the tenant, or each of its processes, answers."""

import asyncio
import json
import re
from dataclasses import replace
from itertools import pairwise

from gpusupervisor.engine_http import BadAnswer, HttpError, TimedOut, without_keys
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.tenants.activity.probes.base import NotThereError, ProbeContext, ask, fetch, unanswered
from gpusupervisor.tenants.activity.verdict import Observation
from gpusupervisor.tenants.census import Holder, TenantPresence
from gpusupervisor.tenants.definition import Endpoint, ProbeSpec
from gpusupervisor.tenants.json_query import query
from gpusupervisor.tenants.listening import address_on_command_line

MAX_WORKERS = 16


class NoEventError(Exception):
    """A stream without the event: an older version of the engine."""


class HttpProbe:
    """true = busy, false = idle, anything else = unknown."""

    def __init__(self, spec: ProbeSpec) -> None:
        self.kind = spec.kind
        self.timeout = spec.timeout * (2 if spec.first else 1)
        self._spec = spec

    async def observe(self, context: ProbeContext) -> Observation:
        """See `Probe`."""
        return await (self._ask_workers(context) if self._spec.worker_port_flag else self._ask(context))

    async def _ask(self, context: ProbeContext) -> Observation:
        spec = self._spec
        try:
            if spec.first and await self._asleep(context):
                return Observation(self.kind, "idle", "asleep", context.now)
            if spec.sleep_flag and (why := _may_go_to_sleep(spec.sleep_flag, context.presence)):
                reason = f"it is awake; {spec.get} is not asked, which {why}"
                return Observation(self.kind, "unknown", reason, context.now, defers=True)
            answer = await (self._event(context) if spec.event else ask(context, spec.get, spec.timeout))
            if spec.stirring_when and query(spec.stirring_when, answer) is True:
                return Observation(self.kind, "stirring", "its API reports a change that is no work", context.now)
            busy = query(spec.busy_when, answer)
        except NoEventError as error:
            return Observation(self.kind, "unknown", str(error), context.now, defers=True)
        except HttpError as error:
            return unanswered(self.kind, error, context)
        if busy is True:
            return Observation(self.kind, "busy", "its API reports work", context.now)
        if busy is False:
            return Observation(self.kind, "idle", "its API reports no work", context.now)
        return Observation(self.kind, "unknown", "its API does not tell whether it is working", context.now)

    async def _asleep(self, context: ProbeContext) -> bool:
        """Whether `get` would wake it. When this cannot be asked, `get` is not sent either."""
        answer = await ask(context, self._spec.first, self._spec.timeout)
        return query(self._spec.asleep_when, answer) is True

    async def _event(self, context: ProbeContext) -> object:
        """What the first event of the stream says. Raises HttpError, NoEventError where its version has none."""
        spec = self._spec
        pattern = re.compile(rb'^data: ?(\{"type": ?"' + re.escape(spec.event.encode()) + rb'".*\})\r?$', re.MULTILINE)
        until = re.compile(pattern.pattern[:-1] + rb"\n", re.MULTILINE)
        try:
            answer = await fetch(context, spec.get, spec.timeout, until)
        except (TimedOut, NotThereError) as error:
            raise NoEventError(f"its API tells no event {spec.event}, so its processes decide") from error
        found = pattern.search(answer.body)
        if found is None:
            raise NoEventError(f"its API tells no event {spec.event}, so its processes decide")
        try:
            data = json.loads(found[1])["data"]
            return json.loads(data) if isinstance(data, str) else data
        except (ValueError, KeyError, TypeError, RecursionError):
            raise BadAnswer(f"answered {spec.get} with an event that cannot be read") from None

    async def _ask_workers(self, context: ProbeContext) -> Observation:
        """Busy or stirring when any of its processes is; idle only when all of them say so."""
        presence = context.presence
        if not presence.holders:
            return Observation(self.kind, "absent", presence.absence, context.now)
        processes = tuple({holder.pid: holder for holder in presence.holders}.values())
        places = [_worker_address(holder, self._spec.worker_port_flag) for holder in processes]
        if None in places or len(places) > MAX_WORKERS:
            return Observation(self.kind, "unknown", "where its processes listen is not known", context.now)
        # At an address that a process has named no key is sent, and nobody but this machine is asked.
        headers = without_keys(presence.headers)
        workers = [
            replace(context, presence=replace(
                presence, holders=(holder,), servers=(), endpoint=place or "", endpoint_is_written=False,
                headers=headers,
            ))
            for holder, place in zip(processes, places, strict=True)
        ]  # fmt: skip
        seen = await asyncio.gather(*(self._ask(worker) for worker in workers))
        for state in ("busy", "stirring", "unknown", "absent"):
            # One that is in doubt is worse than one of which the next probe can tell.
            found = min((each for each in seen if each.state == state), key=lambda each: each.defers, default=None)
            if found is not None:
                return found if state in ("busy", "stirring") else replace(found, state="unknown")
        return seen[0]


def _worker_address(holder: Holder, flag: str) -> str | None:
    """Where a process listens, by its own command line; None when that does not say."""
    if holder.identity is None or holder.identity.is_elsewhere:
        return None
    named = Endpoint("http://127.0.0.1:1", port_flags=(flag,))
    port = address_on_command_line(named, holder.identity.command_line).port
    return f"http://127.0.0.1:{port}" if port else None


def _may_go_to_sleep(flag: str, presence: TenantPresence) -> str:
    """Return what asking would do to the tenant's sleep; empty if none of its processes goes to sleep by itself.

    A process does so by the flag on its command line or, without that there, in its configuration files; a negative
    number means never. The processes may hold no VRAM.
    """
    processes = (*presence.servers, *(holder.identity for holder in presence.holders if holder.identity))
    said = [_sleep_setting(flag, process) for process in processes]
    if any(value and not value.startswith("-") for value in said):
        return "would keep it from going to sleep"
    if None in said or not said:
        return "might keep it from going to sleep: whether it does so by itself is not known"
    return ""


def _sleep_setting(flag: str, process: ProcessIdentity) -> str | None:
    """The setting's value; empty if it is not set, None if that is not known."""
    given = [following for argument, following in pairwise(process.command_line) if argument == flag]
    if given:
        return given[-1]
    if "environment" in process.hidden or not all(file.readable for file in process.configuration):
        return None
    values = (dict(file.values).get(flag.lstrip("-"), "") for file in reversed(process.configuration))
    return next((value for value in values if value), "")
