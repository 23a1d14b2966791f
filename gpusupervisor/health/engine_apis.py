"""Checks of engines' APIs."""

from collections.abc import Iterable, Mapping

from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.engine_http import has_key
from gpusupervisor.health.facts import Facts
from gpusupervisor.state import Check
from gpusupervisor.tenants.census import TenantPresence

SILENT_FOR = 10 * MICROSECONDS
"""An API that starts, or is busy for a moment, is no trouble."""


def check_apis(facts: Facts) -> Iterable[Check]:
    """The API of every engine that runs answers as it should.

    ComfyUI's websocket has no check, for nothing depends on it: since 0.28 a client that only listens is told nothing
    of others' prompts, so whether it works is seen in its queue over HTTP, and a queue whose worker has died is the
    check of that tenant.
    """
    for tenant, engine in facts.engines.items():
        activity, presence = facts.activities.get(tenant), facts.census.tenants.get(tenant)
        if activity is None or presence is None:
            continue
        # A stranger at an address to which a key belongs is waiting for it.
        is_waited_for = activity.trouble == "foreign-socket" and has_key(presence.headers)
        if not (_runs(presence) or engine.settings or is_waited_for):
            continue  # it does not run here: whoever answers at its address is not it
        trouble = activity.trouble
        if not trouble and not engine.reachable:
            yield Check(f"api-{tenant}", "skipped", f"the API of {tenant} has not answered yet")
        elif not trouble:
            yield Check(f"api-{tenant}", "ok", f"the API of {tenant} answers")
        elif facts.lasted("api", tenant) >= SILENT_FOR:
            impact, remedy = _API_TROUBLE[trouble]
            yield Check(f"api-{tenant}", "degraded", f"{tenant}: {activity.trouble_detail}", impact, remedy)
        else:
            yield Check(f"api-{tenant}", "ok", f"the API of {tenant} answered until just now")


def _runs(presence: TenantPresence) -> bool:
    """Whether a server of it may be there; orphans are a finding of their own."""
    return bool(presence.servers) or any(not holder.orphan for holder in presence.holders)


_UNKNOWN = "it is unknown whether it is working, so it is not asked for its memory, which stays in the way"
_API_TROUBLE: Mapping[str, tuple[str, str]] = {
    "unreachable": (
        _UNKNOWN,
        "check that its server is running and listens there; if it listens elsewhere, set url under [endpoint] in its "
        "tenant file (gpusupervisorctl edit)",
    ),
    "no-route": (
        _UNKNOWN,
        "check the address: set url under [endpoint] in its tenant file to one that this machine can reach",
    ),
    "blocked": (
        _UNKNOWN,
        "allow the address that is named there: run systemctl edit gpusupervisor.service, add IPAddressAllow= with it "
        "under [Service], and restart the service",
    ),
    "not-tls": (
        _UNKNOWN,
        "set url under [endpoint] in its tenant file with the scheme that it speaks: https:// if it uses TLS, else "
        "http://",
    ),
    "bad-certificate": (
        _UNKNOWN,
        "set tls-ca under [endpoint] in its tenant file to the certificate of the authority that signed it, or "
        "tls-fingerprint to its SHA-256 fingerprint",
    ),
    "foreign-socket": (
        "another program answers at its address: nothing is sent there, and no memory is released on its word",
        "stop the program that listens there, or start the tenant so that it gets its port; if the socket is the "
        "tenant's after all (a proxy under another account), set user under [endpoint] in its tenant file to that "
        "account",
    ),
    "slow": (_UNKNOWN, "check its own log for the reason; restart it if it does not recover"),
    "needs-key": (
        _UNKNOWN,
        "put the key into a file owned by root, and set headers under [endpoint] in its tenant file to that file",
    ),
    "nonsense": (
        _UNKNOWN,
        "check that the engine listens there and not another program, that its version is supported, and that this "
        "part of its API is not disabled (llama-server with --no-slots, SGLang without --enable-metrics)",
    ),
    "not-allowed": (
        _UNKNOWN,
        "set url under [endpoint] in its tenant file: an address that was only found on a process is not followed "
        "to another machine",
    ),
}
"""By trouble: what that breaks, what to do."""
