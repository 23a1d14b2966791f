"""A verification carried out: each step asked of the service, timed, measured, and put back."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from gpusupervisor.cli import shapes
from gpusupervisor.cli.client import BUS_NAME, ROOT, TENANTS
from gpusupervisor.cli.exits import DONE, FAILED, INTERRUPTED, NOT_ALLOWED, NOT_RUNNING, PARTIAL, CommandFailed
from gpusupervisor.cli.following import follow
from gpusupervisor.cli.session import Session
from gpusupervisor.cli.shapes import Shape
from gpusupervisor.cli.verification_plan import Step, loaded_models
from gpusupervisor.quantities import format_bytes

ENGINES = f"{BUS_NAME}.Engines"
PROFILE = f"{BUS_NAME}.Profile"
TRIAL = 30_000_000
"""Microseconds after which the helper goes back by itself should we not."""
GIVEN_UP = 64 << 20
"""Bytes by which a tenant that gave way holds less."""
NEARLY = 9, 10
"""A release that brings this part of what was expected is what it should be."""
_GOOD = ("ok", "unverifiable")
"""Verdicts on a setting."""
_CODES = {"failed": FAILED, "partial": PARTIAL}
"""Exit codes by a step's verdict; a failure counts for more."""
_OUTCOMES = {DONE: "passed", PARTIAL: "partial", FAILED: "failed"}
"""Of a verification that went through all of its steps, by exit code."""
_ENDS_VERIFICATION = (NOT_ALLOWED, NOT_RUNNING)
"""Exit codes of failures after which no other step can do better."""


@dataclass
class Verification:
    """One run; `rows` grows step by step, and has them all at the end."""

    session: Session
    steps: list[Step]
    rows: list[Shape] = field(default_factory=list)
    code: int = DONE
    _to_load: list[tuple[str, str]] = field(default_factory=list)
    """Engine and model that were released by us and are not back yet."""

    _gave_way: set[str] = field(default_factory=set)
    """Tenants that gave up memory in a hand-off."""

    async def run(self) -> int:
        """Every step in turn; returns the exit code. Ctrl-C ends it after what was changed is put back."""
        try:
            for step in self.steps:
                await self._try(step)
                if self.code == INTERRUPTED:
                    break
        except asyncio.CancelledError:
            self.code = INTERRUPTED
        except CommandFailed as failure:
            self.session.note(failure)
            self.code = failure.exit_code
        if self.code not in _OUTCOMES:
            self._leave_out_the_rest()
            await self._put_back()
        return self.code

    @property
    def outcome(self) -> str:
        """How it went in a word."""
        return _OUTCOMES.get(self.code, "broken-off")

    async def _try(self, step: Step) -> None:
        if step.skipped:
            self.rows.append(_row(step, "skipped", step.skipped))
            return
        tries: dict[str, Callable[[Step], Awaitable[Shape]]] = {
            "release": self._release, "load": self._load, "hand-off": self._hand_off, "profile": self._profile,
            "fans": self._fans,
        }  # fmt: skip
        began = time.monotonic()
        try:
            row = await tries[step.kind](step)
        except CommandFailed as failure:
            if failure.exit_code in _ENDS_VERIFICATION:
                raise
            row = _row(step, "failed", str(failure).removesuffix("."))
        if row["duration"] is None:
            row["duration"] = round((time.monotonic() - began) * 1e6)
        if self.code in (DONE, PARTIAL):
            self.code = _CODES.get(row["verdict"], self.code)
        self.rows.append(row)

    async def _release(self, step: Step) -> Shape:
        if step.target in self._gave_way and not await self._has_something(step.target):
            return _row(step, "skipped", "it gave up its memory in the hand-off")
        models = [each.model for each in self.steps if each.kind == "load" and each.target == step.target]
        try:
            with self.session.waiting(f"{step.target}: waiting until its memory is back"):
                ended = shapes.known(await self._call("Release", "s", [step.target], f"{ROOT}/tenants", TENANTS))
        except asyncio.CancelledError:  # the service carries it out all the same
            self._to_load += [(step.target, model) for model in models]
            raise
        self._to_load += [(step.target, model) for model in models]
        part, of = NEARLY
        enough = ended["freed"] * of >= (step.expected or 0) * part
        verdict = "ok" if ended["outcome"] == "satisfied" and enough else "partial"
        detail = ended["detail"] or "the driver confirms that it came back"
        return _row(step, verdict, detail, ended["freed"], ended["duration"])

    async def _load(self, step: Step) -> Shape:
        if (step.target, step.model) not in self._to_load:
            return _row(step, "skipped", f"{step.model}: it was not released")
        path = await self._call("LoadModel", "ss", [step.target, step.model], f"{ROOT}/engines", ENGINES)
        job, code = await follow(self.session, str(path), "the verification ends, and the model is loaded again")
        if code == DONE:
            self._to_load.remove((step.target, step.model))
            result = job["result"]
            spilled = " - part of it is in system memory" if result["spilled"] else ""
            verdict = "partial" if spilled else "ok"
            return _row(step, verdict, f"{step.model}{spilled}", result["taken"], result["duration"])
        self.code = code if code == INTERRUPTED else self.code
        return _row(step, "failed", f"{step.model}: {job['detail'] or job['state']}")

    async def _hand_off(self, step: Step) -> Shape:
        """Load, see who gave way for it, and put both back."""
        before = await self.session.client.objects()
        path = await self._call("LoadModel", "ss", [step.target, step.model], f"{ROOT}/engines", ENGINES)
        job, code = await follow(self.session, str(path), "the verification ends, and what gave way is loaded again")
        after = await self.session.client.objects()
        left = loaded_models(after)
        self._to_load += [each for each in loaded_models(before) if each not in left]
        if code == INTERRUPTED:
            self.code = code  # what is to be loaded again is loaded at the end of the run
            return _row(step, "failed", f"{step.model}: {job['detail'] or job['state']}")
        gave = _given_up(before, after, step.target)
        self._gave_way.update(who for who, _ in gave)
        troubles = await self._undo_hand_off(step, is_loaded=code == DONE)
        if code != DONE:
            return _row(step, "failed", "; ".join([f"{step.model}: {job['detail'] or job['state']}", *troubles]))
        result = job["result"]
        spilled = ["part of it is in system memory"] if result["spilled"] else []
        whose = f"{step.model}: {', '.join(f'{who} gave up {format_bytes(size)}' for who, size in gave)}"
        detail = "; ".join([whose if gave else f"{step.model}: nobody gave way", *spilled, *troubles])
        verdict = "failed" if troubles or not gave else "partial" if spilled else "ok"
        return _row(step, verdict, detail, result["taken"], result["duration"])

    async def _undo_hand_off(self, step: Step, *, is_loaded: bool) -> list[str]:
        """Unload what was loaded and load what had to give way; returns what could not be put back."""
        troubles = []
        try:
            if is_loaded:
                with self.session.waiting(f"{step.target}: unloading {step.model}"):
                    await self._call("UnloadModel", "ss", [step.target, step.model], f"{ROOT}/engines", ENGINES)
        except CommandFailed as failure:
            troubles.append(f"{step.model} is not unloaded: {failure}".removesuffix("."))
        for engine, model in list(self._to_load):
            try:
                path = await self._call("LoadModel", "ss", [engine, model], f"{ROOT}/engines", ENGINES)
                job, code = await follow(self.session, str(path), "the verification ends")
                why = job["detail"] or job["state"]
            except CommandFailed as failure:
                code, why = failure.exit_code, str(failure).removesuffix(".")
            if code == INTERRUPTED:
                self.code = code
                break
            self._to_load.remove((engine, model))
            if code != DONE:
                troubles.append(f"{model} of {engine} is not loaded again: {why}")
        return troubles

    async def _profile(self, step: Step) -> Shape:
        """Set, go back, look: that this ends with a look at everything is what makes it a read-back."""
        path = await self._gpu(step.target)
        try:
            tried = shapes.known(await self._call("Try", "st", [step.profile, TRIAL], path, PROFILE))
        except asyncio.CancelledError:
            await self._call("Revert", "", [], path, PROFILE)
            raise
        await self._call("Revert", "", [], path, PROFILE)
        verdicts = shapes.known(await self._call("CheckDrift", "", [], path, PROFILE))
        wrong = [f"{each['item']}: {each['detail']}" for each in tried if not each["ok"]]
        wrong += [f"{each['item']} is {each['verdict']}" for each in verdicts if each["verdict"] not in _GOOD]
        told = ", ".join(f"{each['item']} {each['accepted']}" for each in tried)
        return _row(step, "failed" if wrong else "ok", "; ".join(wrong) or told)

    async def _fans(self, step: Step) -> Shape:
        objects = await self.session.client.objects()
        (gpu,) = (each for each in shapes.fans(objects) if each["uuid"] == step.target)
        told = ", ".join(f"fan {each['fan']} {each.get('speed', '?')} %" for each in gpu["fans"])
        if gpu["control"] == "controlling":
            return _row(step, "ok", told)
        return _row(step, "failed", f"{gpu['control']}: {gpu['control_reason']}")

    async def _has_something(self, tenant: str) -> bool:
        """Whether a tenant could be asked for memory now."""
        tenants = shapes.tenants(await self.session.client.objects())
        return any(each["id"] == tenant and each["reclaimable"] for each in tenants)

    async def _gpu(self, uuid: str) -> str:
        from gpusupervisor.cli.cards import card

        return (await card(self.session, uuid))[0]

    async def _call(self, member: str, signature: str, body: list[object], path: str, interface: str) -> object:
        return await self.session.client.call(member, signature, body, path=path, interface=interface)

    def _leave_out_the_rest(self) -> None:
        for step in self.steps[len(self.rows) :]:
            self.rows.append(_row(step, "skipped", step.skipped or "the verification had ended"))

    async def _put_back(self) -> None:
        """Have loaded again what the verification had released, without waiting for it."""
        for engine, model in self._to_load:
            try:
                job = await self._call("LoadModel", "ss", [engine, model], f"{ROOT}/engines", ENGINES)
                self.session.note(f"{model} of {engine} is being loaded again: job {str(job).rsplit('/', 1)[-1]}")
            except CommandFailed as failure:
                self.session.note(f"{model} of {engine} is not loaded again: {failure}")


def _given_up(
    before: Mapping[str, shapes.Interfaces], after: Mapping[str, shapes.Interfaces], beneficiary: str
) -> list[tuple[str, int]]:
    """Which other tenants hold less than before, and by how many bytes."""
    left = {each["id"]: each["holding"] or 0 for each in shapes.tenants(after)}
    lost = [(each["id"], (each["holding"] or 0) - left.get(each["id"], 0)) for each in shapes.tenants(before)]
    return [(who, size) for who, size in lost if who != beneficiary and size >= GIVEN_UP]


def planned(steps: list[Step]) -> list[Shape]:
    """The rows of a verification that is only shown."""
    return [_row(each, "skipped" if each.skipped else "planned", each.skipped or each.what) for each in steps]


def _row(step: Step, verdict: str, detail: str, measured: int | None = None, duration: int | None = None) -> Shape:
    return {
        "step": step.kind, "target": step.target, "model": step.model, "expected": step.expected, "measured": measured,
        "duration": duration, "verdict": verdict, "detail": detail,
    }  # fmt: skip
