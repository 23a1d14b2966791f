"""How much of models' files is in RAM, as far as it was told. Pure."""

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpusupervisor.models.load_speed import NOTHING_LEARNED, LoadSpeeds, estimate
from gpusupervisor.models.model import Model

NEARLY_ALL = 99
"""Percent in RAM from which on a model counts as wholly there."""

_SHARD = re.compile(r"-[0-9]{5}-of-[0-9]{5}(?=\.[a-z]+$)", re.ASCII)
_ENDING = re.compile(r"\.(gguf|safetensors|ckpt|pth?|bin|onnx|sft)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ModelResidency:
    """One model's files. Bytes."""

    name: str
    """As its files have it: Ollama's name, or a path below the directory."""
    size: int
    cached: int | None
    """In RAM; None when that is not known."""
    problem: str = ""
    """Why not all is known."""

    @property
    def is_warm(self) -> bool:
        """Whether next to all of it is in RAM."""
        return self.cached is not None and self.cached * 100 >= self.size * NEARLY_ALL


@dataclass(frozen=True, slots=True)
class Residency:
    """All models of one tenant at one time. Made by `residency_of`."""

    models: Mapping[str, ModelResidency]
    """By name."""
    method: str
    """"cachestat" or "mincore"; empty when nothing could be measured."""
    problems: tuple[str, ...]
    """What was left out, or why nothing is known."""
    read_at: int
    """Microseconds of the domain clock."""
    aliases: Mapping[str, str | None]
    """Other names by which an engine's API may call a model; None for one that could be several."""


def residency_of(models: Iterable[ModelResidency], method: str, problems: tuple[str, ...], read_at: int) -> Residency:
    """A residency of these models."""
    by_name = {model.name: model for model in models}
    aliases: dict[str, str | None] = {}
    for name in by_name:
        for alias in _aliases(name):
            aliases[alias] = None if alias in aliases else name
    return Residency(by_name, method, problems, read_at, aliases)


def find(residency: Residency, model: str) -> ModelResidency | None:
    """The files of a model by the name that the engine's API has for it; None when that is not sure.

    An API may leave out the folder, or the end of the file's name, or put a path before it.
    """
    exact = residency.models.get(model)
    if exact is not None:
        return exact
    alias = residency.aliases.get(model)
    if alias is not None:
        return residency.models[alias]
    steps = model.split("/")
    below = ("/".join(steps[start:]) for start in range(1, len(steps)))
    return next((residency.models[path] for path in below if path in residency.models), None)


def find_files(residency: Residency, directories: Sequence[str], name: str, file: str) -> ModelResidency | None:
    """The files of a model by its name and by the path that its engine names; None when that is not sure.

    The path only chooses among the files that were found below the directories that root has set. One that leads
    elsewhere may be another container's or an invention, so that the name decides.
    """
    plain = posixpath.normpath(file) if file else ""
    for directory in directories:
        if plain.startswith(f"{directory.rstrip('/')}/"):
            below = _SHARD.sub("", plain.removeprefix(f"{directory.rstrip('/')}/"))
            if below in residency.models:
                return residency.models[below]
    return find(residency, name)


def with_residency(
    models: Sequence[Model],
    residency: Residency | None,
    speeds: LoadSpeeds = NOTHING_LEARNED,
    directories: Sequence[str] = (),
) -> tuple[Model, ...]:
    """The models with what is in RAM of them, and how long a load takes from there."""
    if residency is None:
        return tuple(models)
    return tuple(_with_residency(model, residency, speeds, directories) for model in models)


def _with_residency(model: Model, residency: Residency, speeds: LoadSpeeds, directories: Sequence[str]) -> Model:
    files = find_files(residency, directories, model.name, model.file)
    if files is None:
        return replace(model, cached_problem=_why_unknown(residency))
    size = files.size if model.size is None else model.size
    expected = None if files.cached is None else estimate(speeds, files.size, files.cached)
    return replace(model, size=size, cached=files.cached, cached_problem=files.problem, load_estimate=expected)


def _why_unknown(residency: Residency) -> str:
    if residency.problems:
        return residency.problems[0]
    return "its files are not below the directories set under [models]"


def _aliases(name: str) -> set[str]:
    """What else it may be called: Ollama leaves out ":latest", others the folders, the ending, or both."""
    if ":" in name:
        return {name.removesuffix(":latest")} - {name}
    steps = name.split("/")
    paths = {"/".join(steps[start:]) for start in range(len(steps))}
    return (paths | {_ENDING.sub("", path) for path in paths}) - {name}
