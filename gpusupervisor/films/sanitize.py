"""What of engines' answers and of command lines may be recorded: figures and names of models, no prompts, no secrets.

Everything is left out that is not known to be harmless.
"""

import re
from collections.abc import Sequence

from gpusupervisor.engine_http import Answer, BadAnswer

KEPT = frozenset(
    {
        "name", "model", "id", "expires_at", "version", "status", "state", "done_reason", "digest", "format", "family",
        "quantization_level", "parameter_size", "object", "owned_by", "comfyui_version", "python_version", "type",
    }
)  # fmt: skip
"""Keys whose texts are kept."""
HIDDEN = frozenset({"prompt", "messages", "content", "text", "system", "template", "extra_data", "inputs", "input"})
"""Keys of which nothing is kept, whatever they hold."""
LONGEST_TEXT = 128
DEEPEST = 6
WITHHELD = "(set)"
_SECRET = re.compile(r"--?[\w-]*(?:key|token|secret|password|passwd|auth|credential)[\w-]*", re.IGNORECASE)
_METRIC = re.compile(r"(?:#.*|[a-zA-Z_:][\w:]*(?:\{[^{}]{0,256}\})? [0-9eE+.NaInf-]+)?")


def harmless_answer(path: str, answer: Answer) -> dict[str, object]:
    """The answer as a film has it."""
    kept: dict[str, object] = {} if answer.status == 200 else {"status": answer.status}
    try:
        return {**kept, "json": _queue(answer.json()) if path.startswith("/queue") else _harmless(answer.json(), "", 0)}
    except BadAnswer:
        lines = answer.body.decode(errors="replace").splitlines()
        good = all(_METRIC.fullmatch(line) for line in lines)
        return {**kept, "text": "\n".join(line for line in lines if not line.startswith("#")) if good else ""}


def harmless_command(arguments: Sequence[str]) -> list[str]:
    """The command line without the values of what is secret by its name."""
    shown: list[str] = []
    for argument in arguments:
        name, separator, _ = argument.partition("=")
        if shown and _SECRET.fullmatch(shown[-1]) and not argument.startswith("-"):
            shown.append(WITHHELD)
        elif separator and _SECRET.fullmatch(name):
            shown.append(f"{name}={WITHHELD}")
        else:
            shown.append(argument)
    return shown


def _harmless(value: object, key: str, depth: int) -> object:
    if isinstance(value, bool | int | float) or value is None:
        return value
    if isinstance(value, str):
        return value if key in KEPT and len(value) <= LONGEST_TEXT else ""
    if key in HIDDEN or depth >= DEEPEST:
        return None
    if isinstance(value, list):
        return [_harmless(each, key, depth + 1) for each in value]
    if isinstance(value, dict):
        return {name: _harmless(each, name, depth + 1) for name, each in value.items() if name not in HIDDEN}
    return None


def _queue(value: object) -> object:
    """Number and id of each prompt, and nothing of what it says."""
    if not isinstance(value, dict):
        return None
    return {
        name: [entry[:2] if isinstance(entry, list) else None for entry in entries]
        for name, entries in value.items()
        if name in ("queue_running", "queue_pending") and isinstance(entries, list)
    }
