"""How much of every model of a tenant is in RAM. Blocks."""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from gpusupervisor.reader.page_cache.beneath import Beneath, NotPlain
from gpusupervisor.reader.page_cache.measure import Gauge, NotKnowable
from gpusupervisor.reader.page_cache.scan import Found, opened_beneath, scan, why
from gpusupervisor.tenants.definition import ModelFolders


@dataclass(frozen=True, slots=True)
class FileSeen:
    """A file of a model: where it is, and which file that was."""

    path: str
    device: int
    inode: int
    size: int
    cached: int | None
    """Bytes in RAM; None when that cannot be known."""


@dataclass(frozen=True, slots=True)
class ModelSeen:
    """A model's files; each is there once, whatever the number of its names."""

    name: str
    directory: str
    files: tuple[FileSeen, ...]
    problem: str = ""
    """Why not all is known of it."""

    @property
    def size(self) -> int:
        """Bytes of all of its files."""
        return sum(file.size for file in self.files)

    @property
    def cached(self) -> int | None:
        """Bytes in RAM; None when a part of that is not known."""
        parts = [file.cached for file in self.files]
        return None if self.problem or None in parts else sum(part or 0 for part in parts)


@dataclass(frozen=True, slots=True)
class Residency:
    """Of one tenant."""

    models: tuple[ModelSeen, ...]
    problems: tuple[str, ...]


def measure_all(folders: ModelFolders, gauge: Gauge, owner: int = 0) -> Residency:
    """Look at every model's files, as far as the gauge's budget goes."""
    found = scan(folders, gauge.budget, owner)
    models = tuple(_measure(found.models.values(), gauge, owner))
    if gauge.budget.cut:
        found.complain(gauge.budget.cut)
    return Residency(models, tuple(found.problems))


def measure_one(folders: ModelFolders, model: str, gauge: Gauge, owner: int = 0) -> ModelSeen | None:
    """Look at one model's files; None when there is none of that name."""
    found = scan(folders, gauge.budget, owner).models.get(model)
    return next(_measure([found], gauge, owner)) if found else None


def _measure(models: Iterable[Found], gauge: Gauge, owner: int) -> Iterator[ModelSeen]:
    with ExitStack() as stack:
        opened: dict[str, Beneath] = {}
        for found in models:
            try:
                if found.directory not in opened:
                    opened[found.directory] = stack.enter_context(opened_beneath(found.directory, owner))
            except OSError as error:
                yield ModelSeen(found.model.name, found.directory, (), f"its directory is gone ({why(error)})")
            else:
                yield _measure_model(opened[found.directory], found, gauge)


def _measure_model(beneath: Beneath, found: Found, gauge: Gauge) -> ModelSeen:
    files: dict[tuple[int, int], FileSeen] = {}
    problem = found.model.problem
    for path in found.model.files:
        if not gauge.budget.allow():
            problem = problem or gauge.budget.cut
            break
        try:
            with beneath.file(path) as descriptor:
                status = os.fstat(descriptor)
                cached, unknown = _cached(gauge, descriptor)
        except FileNotFoundError:
            problem = problem or "one of its files is missing"
        except NotPlain:
            problem = problem or "one of its files is no regular file"
        except OSError as error:
            problem = problem or f"one of its files cannot be opened ({why(error)})"
        else:
            problem = problem or unknown
            key = (status.st_dev, status.st_ino)
            files.setdefault(key, FileSeen(path, *key, status.st_size, cached))
    return ModelSeen(found.model.name, found.directory, tuple(files.values()), problem)


def _cached(gauge: Gauge, descriptor: int) -> tuple[int | None, str]:
    """Bytes in RAM, or why that is not known."""
    try:
        return gauge.cached(descriptor), ""
    except NotKnowable as problem:
        return None, str(problem)
