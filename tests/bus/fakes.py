"""Peers of the bus service: a controller, authorities, and a polkit that misbehaves on demand."""

import asyncio
from collections.abc import Mapping
from typing import Literal

from dbus_fast import DBusError, ErrorType, Message, MessageType, NameFlag
from dbus_fast.aio import MessageBus

from gpusupervisor.arbitration.situation import PlanResult, ReleasePlan
from gpusupervisor.bus.authority import POLKIT_NAME
from gpusupervisor.bus.objects import Call
from gpusupervisor.controls import DriftVerdict, FanWish, SettingResult, TuningWish
from gpusupervisor.errors import Blocked, NoSuchTenant
from gpusupervisor.health.surroundings import PolkitSeen
from gpusupervisor.jobs import Report, Work
from gpusupervisor.models.load import LoadResult
from gpusupervisor.models.residency import ModelResidency
from gpusupervisor.models.unload import UnloadResult
from gpusupervisor.models.warm_plan import WarmedUp, WarmStep
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.state import Check
from gpusupervisor.tenants.hypothetical import Recognised
from tests.bus.builders import make_plan, make_result

RESULT = SettingResult("power-limit", True, "300 W", "300 W", "")
VERDICT = DriftVerdict("power-limit", "drifted", "reset-to-default", "300 W", "450 W", "reset to the default, 450 W")


class FakeController:
    """Notes what it is asked; `gate` holds MakeRoom and Release back until it is set."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: BaseException | None = None

    def _note(self, *call: object) -> None:
        self.calls.append(call)
        if self.failure:
            raise self.failure

    def plan_release(self, gpu: str, tenant: str, size: int) -> ReleasePlan:
        self._note("plan_release", gpu, tenant, size)
        return make_plan()

    async def make_room(self, gpu: str, tenant: str, size: int) -> PlanResult:
        self._note("make_room", gpu, tenant, size)
        await self.gate.wait()
        if tenant == "too-big":
            raise Blocked("train.py (pid 4242) is in the way and matches no tenant")
        return make_result()

    async def release(self, tenant: str) -> PlanResult:
        self._note("release", tenant)
        await self.gate.wait()
        if tenant == "nobody":
            raise NoSuchTenant("No tenant is called 'nobody'")
        return make_result()

    async def plan_warming(self) -> tuple[WarmStep, ...]:
        self._note("plan_warming")
        known, dark = ModelResidency("qwen3:8b", 8 << 30, 0), ModelResidency("x:1b", 1 << 30, None, "no permission")
        return (
            WarmStep("ollama", known, "worth-it", "it was used recently"),
            WarmStep("ollama", dark, "unknown", "no permission"),
        )

    async def warm(self, tenant: str, model: str, rate: int) -> Work:
        self._note("warm", tenant, model, rate)

        async def work(report: Report) -> WarmedUp:
            report(40, f"reading {model} into RAM")
            await self.gate.wait()
            return WarmedUp(tenant, model, 8 << 30, 2_000_000)

        return work

    async def autotune(self, gpu: str, wish: TuningWish) -> Work:
        self._note("autotune", gpu, wish)

        async def work(_report: Report) -> object:
            await self.gate.wait()
            return None

        return work

    async def check(self) -> tuple[Check, ...]:
        self._note("check")
        await self.gate.wait()
        return (Check("driver", "ok", "driver 580 answers", since=4_000_000_000),)

    async def reload(self) -> None:
        self._note("reload")

    async def set_automatic(self, enabled: bool) -> None:
        self._note("set_automatic", enabled)

    def load_work(self, engine: str, model: str, needs: int) -> Work:
        self._note("load_work", engine, model, needs)

        async def work(report: Report) -> LoadResult:
            report(50, "half of it is there")
            await self.gate.wait()
            return LoadResult(engine, model, "GPU-1", 4 << 30, 2_000_000, spilled=False, retried=True)

        return work

    async def unload_model(self, engine: str, model: str) -> UnloadResult:
        self._note("unload_model", engine, model)
        return UnloadResult(engine, model, 4 << 30, 300_000, "4.0 GiB came back")

    def explain(self, tenant: str) -> str:
        self._note("explain", tenant)
        return "title = 'Ollama'  # shipped\npriority = 50\n"

    def recognise(self, process: ProcessIdentity) -> Recognised | None:
        self._note("recognise", process)
        if process.unit == "ollama.service":
            return Recognised("ollama", "unit ollama.service", "http://127.0.0.1:11434")
        return None

    async def check_definition(self, name: str, text: str) -> tuple[str, ...]:
        self._note("check_definition", name, text)
        return ("title is missing",)


class FakeHardware:
    """Notes what it is asked, and fails as it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.failure: BaseException | None = None

    def _note(self, *call: object) -> None:
        self.calls.append(call)
        if self.failure:
            raise self.failure

    async def set_fan(self, gpu: str, fan: int, wish: FanWish) -> None:
        self._note("set_fan", gpu, fan, wish)

    async def try_profile(self, gpu: str, document: str, within: int) -> tuple[SettingResult, ...]:
        self._note("try_profile", gpu, document, within)
        return (RESULT,)

    async def confirm(self, gpu: str) -> None:
        self._note("confirm", gpu)

    async def revert(self, gpu: str) -> tuple[SettingResult, ...]:
        self._note("revert", gpu)
        return (RESULT,)

    async def apply_profile(self, gpu: str, document: str) -> tuple[SettingResult, ...]:
        self._note("apply_profile", gpu, document)
        return (RESULT,)

    async def reset_profile(self, gpu: str) -> tuple[SettingResult, ...]:
        self._note("reset_profile", gpu)
        return (RESULT,)

    async def check_drift(self, gpu: str) -> tuple[DriftVerdict, ...]:
        self._note("check_drift", gpu)
        return (VERDICT,)

    async def detach(self, gpu: str) -> None:
        self._note("detach", gpu)

    async def attach(self, gpu: str) -> None:
        self._note("attach", gpu)


class FixedAuthority:
    """Says yes, or no, and notes what it was asked."""

    def __init__(self, allow: bool = True) -> None:
        self.allow = allow
        self.asked: list[tuple[str, dict[str, str]]] = []

    async def require(self, call: Call, action: str, details: Mapping[str, str]) -> None:
        self.asked.append((action, dict(details)))
        if not self.allow:
            raise DBusError(ErrorType.ACCESS_DENIED, "no")

    async def seen(self) -> PolkitSeen:
        return PolkitSeen("answers")

    async def close(self) -> None: ...


Mood = Literal["allow", "deny", "challenge", "hang", "error", "odd"]


class FakePolkit:
    """Owns polkit's name, records every message as it came over the wire, and answers as `mood` says."""

    def __init__(self, bus: MessageBus, mood: Mood) -> None:
        self._bus = bus
        self.mood = mood
        self.received: list[Message] = []
        self.arrived = asyncio.Event()
        bus.add_message_handler(self._take)

    @classmethod
    async def start(cls, address: str, mood: Mood) -> "FakePolkit":
        bus = await MessageBus(address).connect()
        polkit = cls(bus, mood)
        await bus.request_name(POLKIT_NAME, NameFlag.DO_NOT_QUEUE)
        return polkit

    def _take(self, message: Message) -> Message | bool:
        if message.message_type is not MessageType.METHOD_CALL:
            return False
        if message.member == "Ping" and self.mood != "hang":
            return False
        self.received.append(message)
        self.arrived.set()
        if message.member != "CheckAuthorization" or self.mood == "hang":
            return True
        if self.mood == "error":
            return Message.new_error(message, "org.freedesktop.PolicyKit1.Error.NotAuthorized", "Only trusted callers")
        if self.mood == "odd":
            return Message.new_method_return(message, "s", ["yes"])
        verdict = [self.mood == "allow", self.mood == "challenge", {}]
        return Message.new_method_return(message, "(bba{ss})", [verdict])

    async def stop(self) -> None:
        if self._bus.connected:
            self._bus.disconnect()
            await self._bus.wait_for_disconnect()  # type: ignore[no-untyped-call]
