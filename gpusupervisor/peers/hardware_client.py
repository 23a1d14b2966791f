"""The supervisor's way to what the helper controls: asks it when something changed, and hands callers' wishes over.

The helper is started for its state once, when the supervisor starts (then it applies what is stored); after that it is
asked only while it runs, and started only for what a caller wants. Whoever stops it means it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from dbus_fast import Message, MessageType, Variant
from dbus_fast.aio import MessageBus

from gpusupervisor.bus.connection import DRIVER_NAME, answer_of, driver_call
from gpusupervisor.bus.names import HELPER_NAME, HELPER_PATH
from gpusupervisor.controls import Controls, DriftVerdict, FanWish, SettingResult
from gpusupervisor.errors import Busy, GpuUnavailable, SupervisorError
from gpusupervisor.gpu.sample import GpuIdentity
from gpusupervisor.peers.control_answers import parse_results, parse_state, parse_verdicts
from gpusupervisor.peers.privileged_call import HELPER, PATIENCE, call

AGAIN_AFTER = 30.0
"""Seconds until a helper that has failed is asked for its state again, the first time."""
LONGEST_PAUSE = 6 * 3600.0
"""Between two attempts at a helper that has failed, unless `ask_again` is called."""
OPTION_TYPES = {"hysteresis": "u", "spin-down-delay": "t", "zero-rpm-below": "u"}
EVENTS = {
    "DriftDetected": "ssa{sv}",
    "DriftRepaired": "ssa{sv}",
    "DriftContested": "ssa{sv}",
    "DriftEnded": "ssa{sv}",
    "TrialEnded": "sssaa{sv}",
    "FanAlert": "sss",
}
"""The helper's signals that are passed on, with their signatures."""

Announce = Callable[[str, str, Sequence[object]], None]
"""Takes a GPU's UUID, the helper's signal, and the rest of its body."""
Shown = Callable[[], Awaitable[None]]


class HardwareClient:
    """The supervisor's `HardwareController`."""

    def __init__(self) -> None:
        self.controls = Controls()
        """What is known; replaced and never changed."""
        self.given_away: Mapping[str, GpuIdentity] = {}
        """GPUs that are to be left alone, by UUID; replaced and never changed, so that any thread may read it."""
        self.answered = asyncio.Event()
        """The first question has come to an end, well or not."""
        self._bus: MessageBus | None = None
        self._shown: Shown | None = None
        self._owner = ""
        self._held: dict[str, str] = {}
        self._wanted = asyncio.Event()
        self._again = False
        """The helper may be started for the next question, though nothing was asked of it."""
        self._asking = asyncio.Lock()

    async def follow_for_ever(self, bus: MessageBus, announce: Announce, shown: Shown) -> None:
        """Keep up with the helper. shown: waits until what is known by then is published."""
        self._bus, self._shown = bus, shown

        def take(message: Message) -> None:
            if message.message_type is MessageType.SIGNAL:
                self._take(message, announce)

        bus.add_message_handler(take)
        try:
            for rule in (
                f"type='signal',sender='{HELPER_NAME}',path='{HELPER_PATH}',interface='{HELPER_NAME}'",
                f"type='signal',sender='{DRIVER_NAME}',member='NameOwnerChanged',arg0='{HELPER_NAME}'",
            ):
                await answer_of(bus, driver_call("AddMatch", rule), PATIENCE)
            await self._refresh(start_helper=True)
            self.answered.set()
            pause = AGAIN_AFTER
            while True:
                start = True
                try:
                    async with asyncio.timeout(pause if self._is_failing else None):
                        await self._wanted.wait()
                except TimeoutError:
                    pause = min(pause * 2, LONGEST_PAUSE)
                else:
                    self._again, start = False, self._again
                self._wanted.clear()
                before = self.controls
                await self._refresh(start_helper=start and self._is_failing and not self._owner)
                if self.controls != before:
                    await shown()
                if not self._is_failing:
                    pause = AGAIN_AFTER
        finally:
            self.answered.set()
            bus.remove_message_handler(take)

    def ask_again(self) -> None:
        """What made the helper fail may be over: a driver was loaded."""
        if self._is_failing:
            self._again = True
            self._wanted.set()

    def require_free(self, gpu: str) -> None:
        """Raises Busy while a GPU is held."""
        if gpu in self._held:
            raise Busy(f"{self._held[gpu][:1].upper()}{self._held[gpu][1:]}")

    @contextmanager
    def hold(self, gpu: str, why: str) -> Iterator[None]:
        """Nothing of a GPU is set meanwhile but by `call`. why: a sentence for those refused. Raises Busy."""
        self.require_free(gpu)
        self._held[gpu] = why
        try:
            yield
        finally:
            del self._held[gpu]

    async def show(self) -> None:
        """Ask the helper how things are, and wait until that is published. Never raises."""
        await self._refresh(start_helper=True)
        if self._shown is not None:
            await self._shown()

    async def set_fan(self, gpu: str, fan: int, wish: FanWish) -> None:
        """See `HardwareController`."""
        options = {name: Variant(OPTION_TYPES[name], value) for name, value in wish.options.items()}
        body = [gpu, fan, wish.mode, wish.percent, [list(point) for point in wish.points], options]
        await self._do(gpu, "SetFan", "susua(uu)a{sv}", body)

    async def try_profile(self, gpu: str, document: str, within: int) -> tuple[SettingResult, ...]:
        """See `HardwareController`."""
        return parse_results(await self._do(gpu, "TryProfile", "sst", [gpu, document, within], "aa{sv}"))

    async def confirm(self, gpu: str) -> None:
        """See `HardwareController`."""
        await self._do(gpu, "Confirm", "s", [gpu])

    async def revert(self, gpu: str) -> tuple[SettingResult, ...]:
        """See `HardwareController`."""
        return parse_results(await self._do(gpu, "Revert", "s", [gpu], "aa{sv}"))

    async def apply_profile(self, gpu: str, document: str) -> tuple[SettingResult, ...]:
        """See `HardwareController`."""
        return parse_results(await self._do(gpu, "ApplyProfile", "ss", [gpu, document], "aa{sv}"))

    async def reset_profile(self, gpu: str) -> tuple[SettingResult, ...]:
        """See `HardwareController`."""
        return parse_results(await self._do(gpu, "ResetProfile", "s", [gpu], "aa{sv}"))

    async def check_drift(self, gpu: str) -> tuple[DriftVerdict, ...]:
        """See `HardwareController`."""
        return parse_verdicts(await self._do(gpu, "CheckDrift", "s", [gpu], "aa{sv}"))

    async def detach(self, gpu: str) -> None:
        """See `HardwareController`."""
        await self._do(gpu, "Detach", "s", [gpu])

    async def attach(self, gpu: str) -> None:
        """See `HardwareController`."""
        await self._do(gpu, "Attach", "s", [gpu])

    @property
    def _is_failing(self) -> bool:
        """It is worth to ask again although nothing was heard: a helper that is not installed is none of these."""
        return self.controls.problem not in ("", HELPER.missing)

    def _take(self, message: Message, announce: Announce) -> None:
        """A signal came; only the bus, and whoever has the helper's name, are believed."""
        if message.sender == DRIVER_NAME and message.member == "NameOwnerChanged" and message.body[0] == HELPER_NAME:
            self._owner = message.body[2]
            held = any(gpu.is_held for gpu in self.controls.gpus.values())
            if self._owner or held:
                self._wanted.set()
        elif message.sender == self._owner and message.interface == HELPER_NAME:
            if message.member == "Changed":
                self._wanted.set()
            elif message.member in EVENTS and message.signature == EVENTS[message.member]:
                announce(message.body[0], message.member, message.body[1:])

    async def _do(
        self, gpu: str, member: str, signature: str, body: list[object], answer: str = ""
    ) -> list[Mapping[str, Variant]]:
        """Have something done, and what came of it shown before the caller is answered."""
        self.require_free(gpu)
        reply = await self.call(member, signature, body, answer)
        await self.show()
        return list(reply.body[0]) if answer else []

    async def _refresh(self, *, start_helper: bool) -> None:
        """Ask for the state; one question at a time, or the older answer might be taken for the newer. Never raises."""
        async with self._asking:
            try:
                reply = await self.call("State", "", [], "a{sa{sv}}", start_helper=start_helper)
            except SupervisorError as error:
                self.controls = Controls(self.controls.gpus, str(error))
                return
            self._owner = reply.sender or ""
            self.controls = Controls(parse_state(reply.body[0]), "")
            self.given_away = {
                uuid: gpu.identity for uuid, gpu in self.controls.gpus.items() if gpu.condition == "given-away"
            }

    async def release_unit(self, tenant: str) -> tuple[str, str]:
        """Have the unit that the tenant's file names stopped or restarted; return it and which of the two.

        Raises SupervisorError.
        """
        reply = await self.call("ReleaseUnit", "s", [tenant], "ss")
        return str(reply.body[0]), str(reply.body[1])

    async def call(
        self, member: str, signature: str, body: list[object], answer: str, *, start_helper: bool = True
    ) -> Message:
        """The reply. Raises the helper's error as ours, GpuUnavailable when there is no helper that answers."""
        if self._bus is None:
            raise GpuUnavailable("The supervisor is only just starting: try again in a second")
        return await call(self._bus, HELPER, member, signature, body, answer, start=start_helper)
