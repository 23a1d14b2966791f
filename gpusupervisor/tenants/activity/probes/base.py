"""What every probe is given and is."""

import re
from dataclasses import dataclass
from typing import Protocol

from gpusupervisor.engine_http import (
    Answer,
    BadAnswer,
    BadCertificate,
    Blocked,
    EngineHttp,
    ForeignSocket,
    HttpError,
    KeyFile,
    NeedsKey,
    NoRoute,
    NotAllowed,
    NotTls,
    TimedOut,
    Unreachable,
)
from gpusupervisor.foreign_text import harmless
from gpusupervisor.tenants.activity.probes.process_activity import NOTHING_SEEN, Signs
from gpusupervisor.tenants.activity.verdict import Observation, Trouble
from gpusupervisor.tenants.census import TenantPresence

NO_ENTRY = (401, 403)
"""HTTP statuses of who wants a key."""


@dataclass(frozen=True, slots=True)
class ProbeContext:
    """Everything a probe may look at. Instants are microseconds of the domain clock."""

    now: int
    realtime: int
    """The wall-clock microseconds (Unix epoch) of `now`: engines write wall-clock times."""
    presence: TenantPresence
    measured_at: int
    """When the driver was asked for what `presence` holds."""
    http: EngineHttp
    signs: Signs = NOTHING_SEEN
    """What its processes were seen to do until `now`."""


class NotThereError(BadAnswer):
    """There is no such path: another version of the engine, or none of it."""


class Probe(Protocol):
    """One way to ask one tenant's engine for its work; keeps what it heard before."""

    kind: str
    timeout: int
    """Microseconds after which a look has failed."""

    async def observe(self, context: ProbeContext) -> Observation:
        """Look once. What the engine does wrong is an observation, never an exception."""


async def ask(context: ProbeContext, path: str, timeout: int) -> object:  # noqa: ASYNC109
    """The JSON that the tenant's endpoint answers. Raises HttpError."""
    return (await fetch(context, path, timeout)).json()


async def fetch(context: ProbeContext, path: str, timeout: int, until: re.Pattern[bytes] | None = None) -> Answer:  # noqa: ASYNC109
    """What the tenant's endpoint answers, when it is a success. Raises HttpError."""
    presence = context.presence
    if presence.is_elsewhere:
        raise NotAllowed(
            "it listens in a network of its own, and no published port is known to lead to it; publish its port on "
            f"127.0.0.1, or set url under [endpoint] in /etc/gpusupervisor/tenants.d/{presence.id}.toml"
        )
    # Another machine is asked only when a file says so: a process could name any.
    answer = await context.http.get(
        presence.endpoint, path, timeout=timeout, headers=presence.headers, remote=presence.endpoint_is_written,
        peer=presence.peer, until=until,
    )  # fmt: skip
    if answer.status in NO_ENTRY:
        raise NeedsKey(f"answered {harmless(path, 60)} with status {answer.status}: {_about_key(presence)}")
    if answer.status == 404:
        raise NotThereError(f"answered {harmless(path, 60)} with status 404")
    if not answer.ok:
        raise BadAnswer(f"answered {harmless(path, 60)} with status {answer.status}")
    return answer


def _about_key(presence: TenantPresence) -> str:
    """What to do about an engine that wants a key."""
    files = ", ".join(value.path for _, value in presence.headers if isinstance(value, KeyFile))
    if files:
        return f"it does not accept the key in {files}"
    written = f"name a file with it under [endpoint] headers in /etc/gpusupervisor/tenants.d/{presence.id}.toml"
    if presence.endpoint_is_written:
        return f"it wants a key; {written}"
    return f"it wants a key, which is sent to no address that only its process has named; {written}, beside the url"


def unanswered(kind: str, error: HttpError, context: ProbeContext) -> Observation:
    """The observation when the engine could not be asked: never idle."""
    presence = context.presence
    if not presence.endpoint and not presence.holders and not presence.is_elsewhere:
        return Observation(kind, "absent", presence.absence, context.now)
    if isinstance(error, Unreachable):
        return Observation(kind, "absent", str(error), context.now, unreachable=True, trouble="unreachable")
    reason = f"its API cannot be asked: {error}" if isinstance(error, NotAllowed) else f"its API {error}"
    return Observation(kind, "unknown", reason, context.now, trouble=_trouble(error))


_TROUBLES: tuple[tuple[type[HttpError], Trouble], ...] = (
    (NeedsKey, "needs-key"),
    (TimedOut, "slow"),
    (NoRoute, "no-route"),
    (Blocked, "blocked"),
    (NotTls, "not-tls"),
    (BadCertificate, "bad-certificate"),
    (ForeignSocket, "foreign-socket"),
    (NotAllowed, "not-allowed"),
)
"""The first that fits; "nonsense" for everything else."""


def _trouble(error: HttpError) -> Trouble:
    return next((trouble for kind, trouble in _TROUBLES if isinstance(error, kind)), "nonsense")


def count(value: object) -> int | None:
    """A JSON number that counts something; None for anything else (true is not 1)."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
