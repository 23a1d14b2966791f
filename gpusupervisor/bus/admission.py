"""Calls that change something are let in one by one: the authority first, and not too many of one caller."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dbus_fast import DBusError, ErrorType

from gpusupervisor.bus.authority import Authority
from gpusupervisor.bus.objects import Call

CALLS_PER_SENDER = 8
"""Calls of one connection that change something, served at the same time."""

GUARDED = frozenset(
    {
        "Apply",
        "Attach",
        "Autotune",
        "Cancel",
        "CheckDrift",
        "Confirm",
        "Detach",
        "Forget",
        "InspectProcess",
        "LoadModel",
        "MakeRoom",
        "Record",
        "Release",
        "Reload",
        "Reset",
        "Revert",
        "SetAutomatic",
        "SetCurve",
        "SetFixed",
        "Try",
        "UnloadModel",
        "WarmModel",
    }
)
"""The methods that are let in here; anybody may call the others."""


class Admission:
    """Of all objects together."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self._being_served: Counter[str] = Counter()

    @asynccontextmanager
    async def authorized(self, call: Call, action: str, **details: str) -> AsyncIterator[None]:
        """The body runs only for a caller who may. details: what polkit's rules may look at; empty ones are dropped."""
        if self._being_served[call.sender] >= CALLS_PER_SENDER:
            raise DBusError(
                ErrorType.LIMITS_EXCEEDED,
                f"{CALLS_PER_SENDER} calls of yours are still being served: wait for one of them to return",
            )
        self._being_served[call.sender] += 1
        try:
            await self._authority.require(call, action, {name: value for name, value in details.items() if value})
            yield
        finally:
            self._being_served -= Counter([call.sender])  # drops the entry at zero
