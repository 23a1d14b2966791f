"""Who may be asked for memory, and for what reason a holder may not. Pure."""

from dataclasses import dataclass

from gpusupervisor.arbitration.situation import BlockerReason, TenantSituation

WORTHWHILE = 64 * 1024 * 1024
"""Bytes: nobody is disturbed, or named as a blocker, for less."""
ANYBODY = 101
"""The priority of a person who asks for room for nobody in particular: above every tenant's."""


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a tenant may not be asked."""

    reason: BlockerReason
    detail: str


def objection(tenant: TenantSituation, gpu: str, now: int, rank: int) -> Objection | None:
    """What forbids an automatic plan of priority `rank` to ask this tenant on a GPU; None when nothing does."""
    return refusal(tenant, gpu) or _not_now(tenant, now, rank)


def refusal(tenant: TenantSituation, gpu: str) -> Objection | None:
    """What forbids even a person's own request; None when nothing does."""
    if tenant.protected:
        return Objection("protected", "it is protected: never asked")
    if gpu in tenant.orphan_on:
        return Objection("orphan", "its process has outlived its server, which alone could be asked: end the process")
    if tenant.remote:
        return Objection("remote", "its endpoint is not on this machine")
    if not tenant.has_release:
        return Objection("no-release-method", "it has no way to be asked: stop it, or give it a [[release]]")
    if tenant.used_by:
        return Objection("busy", tenant.used_by)
    if tenant.activity == "stuck":
        return Objection("stuck", tenant.activity_reason)
    if tenant.activity == "busy":
        return Objection("busy", tenant.activity_reason)
    if tenant.activity != "idle":
        return Objection("unknown", tenant.activity_reason)
    if tenant.releasing:
        return Objection("cooldown", "a release of it is under way")
    return None


def _not_now(tenant: TenantSituation, now: int, rank: int) -> Objection | None:
    """What forbids an automatic plan, though a person might ask."""
    if tenant.pinned and not tenant.release_pinned:
        return Objection("pinned", "the user asked its engine to keep the memory (set release-pinned to override)")
    if tenant.priority >= rank:
        return Objection("higher-priority", f"its priority of {tenant.priority} is not below {rank}")
    if tenant.resident_since is not None and now - tenant.resident_since < tenant.min_residency:
        return Objection("cooldown", "its memory came only just now (min-residency)")
    if now < tenant.cooldown_until:
        return Objection("cooldown", tenant.cooldown_reason or "it was asked only just now (cooldown)")
    if tenant.releases_left <= 0:
        return Objection("cooldown", "it was released as often as its release-budget allows within an hour")
    return None
