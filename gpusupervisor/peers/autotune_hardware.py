"""One GPU as a sweep sees it: set by trials of the helper, which take themselves back, and looked at by the helper."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dbus_fast import Variant

from gpusupervisor.autotune.curve import Look
from gpusupervisor.autotune.points import Point, profile_document
from gpusupervisor.autotune.run import Stopped, to_the_end
from gpusupervisor.errors import Busy, InvalidArgument
from gpusupervisor.peers.control_answers import parse_results
from gpusupervisor.peers.hardware_client import HardwareClient


@dataclass(frozen=True, slots=True)
class _Told:
    """What the helper told of one moment. Microseconds of the domain clock, which is the same in both processes."""

    look: Look
    xid_count: int
    power_limit: int | None
    offset: int | None
    trial_ends: int | None


class TunedGpu:
    """`Control` and `Sensors` of one GPU, for one sweep. Nothing is ever stored."""

    def __init__(self, hardware: HardwareClient, gpu: str) -> None:
        self._hardware = hardware
        self._gpu = gpu
        self._tried = False
        """A trial of ours may be running."""
        self._trial_ends: int | None = None
        """By which the trial of ours is known from any other; None while there is none."""
        self._xid_count: int | None = None
        """Of the last look; what came before the first one is not held against the sweep."""

    async def look(self) -> Look:
        """See `Sensors`. Raises Stopped when the point is not set any more, so that nothing else is taken for it."""
        told = await self._read()
        fresh = 0 if self._xid_count is None else max(0, told.xid_count - self._xid_count)
        self._xid_count = told.xid_count
        xids = told.look.xids[-fresh:] if fresh else ()
        if not xids and self._trial_ends is not None and told.trial_ends != self._trial_ends:
            raise Stopped(
                "The sweep was stopped: the helper has set the state before again meanwhile (see LastTrialReason)"
            )
        return replace(told.look, xids=xids)

    async def set(self, point: Point, within: int) -> Point:
        """See `Control`: a trial that nobody confirms, of the point alone, so that all else stays as it is."""
        await to_the_end(self._revert())
        await to_the_end(self._try(point, within))
        told = await self._read()
        self._trial_ends = told.trial_ends
        if told.trial_ends is None and told.xid_count == self._xid_count:
            raise Stopped("The sweep was stopped: the helper took the point back at once (see LastTrialReason)")
        offset = point.offset if point.offset is None or told.offset is None else told.offset
        return Point(point.power_limit if told.power_limit is None else told.power_limit, offset)

    async def restore(self) -> None:
        """See `Control`. That it is so is published when this returns."""
        if self._tried:
            await self._revert()
            await self._hardware.show()

    async def _revert(self) -> None:
        """Take the point back; that there is none any more is as good."""
        if not self._tried:
            return
        self._trial_ends = None
        with contextlib.suppress(InvalidArgument):
            await self._hardware.call("Revert", "s", [self._gpu], "aa{sv}")
        self._tried = False

    async def _try(self, point: Point, within: int) -> None:
        self._tried = True
        body = [self._gpu, profile_document(point), within]
        try:
            reply = await self._hardware.call("TryPoint", "sst", body, "aa{sv}")
        except Busy:  # with a trial of somebody else's, or before sleep
            self._tried = False
            raise
        for result in parse_results(reply.body[0]):
            if not result.ok:
                raise Stopped(f"The sweep was stopped: {result.item} of {result.asked} was not taken: {result.detail}")

    async def _read(self) -> _Told:
        reply = await self._hardware.call("ReadSensors", "s", [self._gpu], "a{sv}")
        return _parse(reply.body[0])


def _parse(told: Mapping[str, Variant]) -> _Told:
    found: dict[str, Any] = {name: value.value for name, value in told.items()}
    look = Look(
        at=found["at"],
        power=found.get("power"),
        temperature=found.get("temperature"),
        reasons=frozenset(found["reasons"]),
        energy=found.get("energy"),
        xids=tuple(found["xids"]),
    )
    return _Told(
        look, found["xid_count"], found.get("power_limit"), found.get("offset_graphics"), found.get("trial_ends")
    )
