"""Probe `comfyui`: its queue, and how its last prompt ended.

The thread that works the queue off can die and leave its entry there for ever
(https://github.com/Comfy-Org/ComfyUI/issues/16312), so the queue is the engine's word and no more.
"""

from dataclasses import dataclass

from gpusupervisor.engine_http import BadAnswer, HttpError
from gpusupervisor.tenants.activity.probes.base import ProbeContext, ask, count, unanswered
from gpusupervisor.tenants.activity.verdict import Observation
from gpusupervisor.tenants.definition import ProbeSpec

COMPARE_AFTER = 10_000_000
"""Microseconds without work after which the head of the queue is read, and between two such readings: it contains whole
prompts."""
IMPACT = (
    "if its worker has died, it will run no further job, and its memory cannot be released, because the worker would "
    "have to execute /free"
)
LAST_PROMPT = "/history?max_items=1"
OUT_OF_MEMORY = "OutOfMemory"
"""In the type of a node's exception: torch.OutOfMemoryError, torch.cuda.OutOfMemoryError."""


@dataclass(frozen=True, slots=True)
class QueueHead:
    """What /queue says, without anyone's prompts: they are never kept, logged or published."""

    running: tuple[str, ...]
    """Ids of the entries that claim to run."""
    pending: int


class ComfyUiProbe:
    """Busy while the queue holds something, idle while it is empty."""

    kind = "comfyui"

    def __init__(self, spec: ProbeSpec) -> None:
        self.timeout = 2 * spec.timeout
        self._request_timeout = spec.timeout
        self._remaining = 0
        self._progress_at: int | None = None
        self._compared_at = 0
        self._head: QueueHead | None = None
        self._out_of_memory_at: int | None = None

    async def observe(self, context: ProbeContext) -> Observation:
        """See `Probe`."""
        try:
            remaining = queue_remaining(await ask(context, "/prompt", self._request_timeout))
            ended = remaining < self._remaining
            self._note_length(remaining, context.now)
            if ended and await self._ran_out_of_memory(context):
                self._out_of_memory_at = context.now
            if remaining:
                await self._compare_head(context)
        except HttpError as error:
            return unanswered(self.kind, error, context)
        return Observation(
            self.kind,
            "busy" if remaining else "idle",
            self._reason(remaining),
            context.now,
            impact=IMPACT if remaining else "",
            progressed_at=self._progress_at,
            out_of_memory_at=self._out_of_memory_at,
        )

    def _reason(self, remaining: int) -> str:
        if not remaining:
            return "its queue is empty"
        prompts = "1 prompt" if remaining == 1 else f"{remaining} prompts"
        waiting = self._head is not None and not self._head.running
        return f"its queue reports {prompts}{', none of which is running' if waiting else ''}"

    def _note_length(self, remaining: int, now: int) -> None:
        """A queue that was empty, or has shrunk, is being worked off."""
        if not self._remaining or remaining < self._remaining:
            self._progress_at = self._compared_at = now
            self._head = None
        self._remaining = remaining

    async def _compare_head(self, context: ProbeContext) -> None:
        """Another prompt at the head than last time means that the worker lives. Not read while work is seen."""
        signs = context.signs
        moved_at = max(self._compared_at, signs.sm_at, signs.rose_at, signs.cpu_at)
        if context.now - moved_at < COMPARE_AFTER:
            return
        self._compared_at = context.now
        try:
            head = queue_head(await ask(context, "/queue", self._request_timeout))
        except HttpError:
            return  # whole prompts make it larger than is read, perhaps: the processes decide alone
        if self._head is not None and head.running != self._head.running:
            self._progress_at = context.now
        self._head = head

    async def _ran_out_of_memory(self, context: ProbeContext) -> bool:
        """Whether the prompt that has just ended failed for lack of memory, as far as ComfyUI tells."""
        try:
            return failed_for_memory(await ask(context, LAST_PROMPT, self._request_timeout))
        except HttpError:
            return False


def queue_remaining(answer: object) -> int:
    """Prompts that run or wait. Raises BadAnswer."""
    info = answer.get("exec_info") if isinstance(answer, dict) else None
    remaining = count(info.get("queue_remaining")) if isinstance(info, dict) else None
    if remaining is None:
        raise BadAnswer("answered /prompt without the length of its queue")
    return remaining


def queue_head(answer: object) -> QueueHead:
    """What /queue says. Raises BadAnswer."""
    running = answer.get("queue_running") if isinstance(answer, dict) else None
    pending = answer.get("queue_pending") if isinstance(answer, dict) else None
    if not isinstance(running, list) or not isinstance(pending, list):
        raise BadAnswer("answered /queue without its lists")
    ids = (entry[1] if isinstance(entry, list) and len(entry) > 1 else None for entry in running)
    return QueueHead(tuple(known[:64] for known in ids if isinstance(known, str)), len(pending))


def failed_for_memory(answer: object) -> bool:
    """Whether a prompt of this /history ended with an exception for lack of memory; False for any other shape."""
    entries = answer.values() if isinstance(answer, dict) else ()
    statuses = (entry.get("status") for entry in entries if isinstance(entry, dict))
    messages = (status.get("messages") for status in statuses if isinstance(status, dict))
    return any(_tells_of_memory(message) for told in messages if isinstance(told, list) for message in told)


def _tells_of_memory(message: object) -> bool:
    if not isinstance(message, list) or len(message) != 2 or message[0] != "execution_error":
        return False
    kind = message[1].get("exception_type") if isinstance(message[1], dict) else None
    return isinstance(kind, str) and OUT_OF_MEMORY in kind
