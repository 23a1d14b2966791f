"""Decides whether a tenant may be asked to release memory. Pure."""

from dataclasses import dataclass

from gpusupervisor.arbitration.situation import BlockerReason, TenantSituation
from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.clock import UNKNOWN as INFINITY
from gpusupervisor.quantities import format_duration

ANYBODY = 101
"""Priority of a request without a beneficiary; tenants have 0 to 100."""
_LIVELY = ("busy", "claimed", "stirring")
_STEPS = (10 * MICROSECONDS, 60 * MICROSECONDS, 600 * MICROSECONDS)
"""Time left is told in steps, rounded up, so that a text changes seldom."""


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a tenant may not be asked."""

    reason: BlockerReason
    detail: str
    until: int = 0
    """When it ends by itself, in microseconds of the domain clock; 0 when it does not."""


def objection(tenant: TenantSituation, gpu: str, now: int, rank: int, beneficiary: str = "") -> Objection | None:
    """Return why a plan of priority `rank` may not ask this tenant on a GPU, or None.

    beneficiary: tenant id; empty when room is made for nobody in particular.
    """
    return refusal(tenant, gpu) or _not_now(tenant, now, rank, beneficiary)


def refusal(tenant: TenantSituation, gpu: str) -> Objection | None:
    """Return why the tenant may not even be asked by a direct release request, or None."""
    if tenant.protected:
        return Objection("protected", "it is protected")
    if gpu in tenant.orphan_on:
        return Objection("orphan", "its server, which alone could be asked, is gone: end the process")
    if tenant.remote:
        return Objection("remote", "its endpoint is not on this machine")
    if not tenant.has_release:
        return Objection("no-release-method", "there is no way to ask it: stop it, or add a [[release]] to its file")
    if tenant.release_problem:
        return Objection("no-release-method", tenant.release_problem)
    if tenant.used_by:
        return Objection("busy", tenant.used_by)
    if tenant.activity == "stuck":
        return Objection("stuck", tenant.activity_reason)
    if tenant.activity in _LIVELY:
        return Objection("busy", tenant.activity_reason)
    if tenant.activity != "idle":
        return Objection("unknown", tenant.activity_reason)
    if tenant.releasing:
        return Objection("cooldown", "a release of it is under way")
    return None


def idle_objection(tenant: TenantSituation, gpu: str, now: int) -> Objection | None:
    """Return why the tenant may not be asked merely because it has been idle for long, or None."""
    if tenant.resident_since is not None and now - tenant.resident_since < tenant.min_residency:
        until = tenant.resident_since + tenant.min_residency
        return Objection("cooldown", f"it loaded its memory a moment ago (min-residency{_left(until, now)})", until)
    return objection(tenant, gpu, now, ANYBODY)


def _not_now(tenant: TenantSituation, now: int, rank: int, beneficiary: str) -> Objection | None:
    """Return an objection that a direct release request overrides, or None."""
    if tenant.pinned and not tenant.release_pinned:
        return Objection("pinned", "the user asked its engine to keep the memory (set release-pinned to override)")
    if tenant.priority >= rank:
        return Objection("higher-priority", f"its priority of {tenant.priority} is not below {rank}")
    if now < tenant.distrusted_until:
        until = 0 if tenant.distrusted_until == INFINITY else tenant.distrusted_until
        return Objection("does-not-give-back", f"{tenant.distrust}{_left(until, now, '; asked again in ')}", until)
    if now < tenant.cooldown_until:
        why = tenant.cooldown_reason or "it was asked a moment ago (cooldown)"
        return Objection("cooldown", f"{why}{_left(tenant.cooldown_until, now)}", tenant.cooldown_until)
    if tenant.releases_left <= 0:
        why = "it has been asked as often per hour as its release-budget allows"
        return Objection("cooldown", f"{why}{_left(tenant.budget_until, now)}", tenant.budget_until)
    until = tenant.paused_for.get(beneficiary, 0)
    if now < until:
        why = f"the memory has gone back and forth between it and {beneficiary} too often within the hour"
        return Objection("cooldown", f"{why}{_left(until, now)}", until)
    return None


def _left(until: int, now: int, words: str = ", for another ") -> str:
    """The time that is left, in words that change seldom; empty when it is over."""
    left = until - now
    if left <= 0:
        return ""
    step = _STEPS[0] if left <= _STEPS[1] else _STEPS[1] if left <= 20 * _STEPS[1] else _STEPS[2]
    return f"{words}{format_duration(-(-left // step) * step)}"
