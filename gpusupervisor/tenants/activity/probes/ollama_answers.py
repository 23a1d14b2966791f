"""What Ollama and its runners answer, as values. Anything of another shape is a BadAnswer."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from gpusupervisor.engine_http import BadAnswer
from gpusupervisor.foreign_text import harmless
from gpusupervisor.tenants.activity.probes.base import count
from gpusupervisor.tenants.census import Holder

FOR_EVER = int(datetime(2200, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
"""keep_alive = -1 is written as an expiry about 292 years from now."""
MAX_MODELS = 64

_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,12}))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)
_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """One entry of /api/ps."""

    name: str
    size: int
    """Bytes it wants, as Ollama estimates."""
    size_vram: int
    """Of which on GPUs."""
    expires_at: int
    """Wall-clock microseconds (Unix epoch). Set when a request ends, so it lies in the past during a long one."""

    @property
    def spilled(self) -> bool:
        """Part of it did not fit."""
        return self.size_vram < self.size

    @property
    def pinned(self) -> bool:
        """The user asked to keep it loaded for ever."""
        return self.expires_at >= FOR_EVER


def local_models(answer: object) -> tuple[LoadedModel, ...]:
    """The models of /api/ps that are in this machine's memory. Raises BadAnswer."""
    entries = answer.get("models") if isinstance(answer, dict) else None
    if not isinstance(entries, list) or len(entries) > MAX_MODELS:
        raise BadAnswer("answered /api/ps without a list of models")
    return tuple(_model(entry) for entry in entries if not (isinstance(entry, dict) and entry.get("remote_host")))


def _model(entry: object) -> LoadedModel:
    if isinstance(entry, dict):
        name, size, vram = entry.get("name"), count(entry.get("size")), count(entry.get("size_vram", 0))
        expires_at = wall_clock(entry.get("expires_at"))
        if isinstance(name, str) and size is not None and vram is not None and expires_at is not None:
            return LoadedModel(name, size, vram, expires_at)
    raise BadAnswer("answered /api/ps with a model that cannot be read")


def wall_clock(text: object) -> int | None:
    """Unix microseconds of a Go timestamp (nine fractional digits, any offset); None if it is none."""
    found = _TIMESTAMP.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[group]) for group in range(1, 7))
    try:
        elapsed = datetime(year, month, day, hour, minute, second) - _EPOCH
    except ValueError:
        return None
    seconds = elapsed.days * 86_400 + elapsed.seconds
    if found[8]:
        offset = int(found[9]) * 3600 + int(found[10]) * 60
        seconds += offset if found[8] == "-" else -offset
    return seconds * 1_000_000 + int((found[7] or "0")[:6].ljust(6, "0"))


def version_of(answer: object) -> str:
    """The version that /api/version tells; empty when it does not."""
    version = answer.get("version") if isinstance(answer, dict) else None
    return harmless(version, 40) if isinstance(version, str) else ""


def runner_ports(holders: Iterable[Holder]) -> tuple[int, ...]:
    """The ports on 127.0.0.1 that the runners among the holders were told to listen on, each once. In a network of its
    own none leads to a runner."""
    here = (holder.identity for holder in holders if holder.identity and not holder.identity.is_elsewhere)
    return tuple(sorted({port for each in here if (port := _port(each.command_line))}))


def _port(command_line: tuple[str, ...]) -> int:
    port = 0
    for argument, following in zip(command_line, (*command_line[1:], ""), strict=False):
        text = following if argument == "--port" else argument.removeprefix("--port=")
        if (argument == "--port" or argument.startswith("--port=")) and text.isascii() and text.isdigit():
            port = int(text[:6])
    return port if port < 65536 else 0


def any_slot_processing(answer: object) -> bool:
    """Whether any slot of /slots works. Raises BadAnswer."""
    states = [slot.get("is_processing") if isinstance(slot, dict) else None for slot in _list(answer)]
    if not states or not all(isinstance(state, bool) for state in states):
        raise BadAnswer("answered /slots in a shape that cannot be read")
    return any(states)


def _list(answer: object) -> list[object]:
    return answer if isinstance(answer, list) else []
