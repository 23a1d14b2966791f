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
        return Objection("protected", "it is protected")
    if gpu in tenant.orphan_on:
        return Objection("orphan", "its server, which alone could be asked, is gone: end the process")
    if tenant.remote:
        return Objection("remote", "its endpoint is not on this machine")
    if not tenant.has_release:
        return Objection("no-release-method", "there is no way to ask it: stop it, or add a [[release]] to its file")
    if tenant.used_by:
        return Objection("busy", tenant.used_by)
    if tenant.activity == "stuck":
        return Objection("stuck", tenant.activity_reason)
    if tenant.activity in ("busy", "claimed", "stirring"):
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
        return Objection("cooldown", "it loaded its memory a moment ago (min-residency)")
    if now < tenant.cooldown_until:
        return Objection("cooldown", tenant.cooldown_reason or "it was asked a moment ago (cooldown)")
    if tenant.releases_left <= 0:
        return Objection("cooldown", "it has been asked as often per hour as its release-budget allows")
    return None
