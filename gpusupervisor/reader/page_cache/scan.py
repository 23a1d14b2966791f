"""Enumerating the models below a tenant's directories: bounded in count, depth and time. Blocks."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from gpusupervisor.foreign_text import harmless
from gpusupervisor.reader.page_cache import layout
from gpusupervisor.reader.page_cache.beneath import Beneath, NotPlain, opened_root
from gpusupervisor.reader.page_cache.budget import Budget
from gpusupervisor.tenants.definition import ModelFolders

MOST_MODELS = 2_000
DEEPEST = 8
"""Folders below each other; the Hub's cache needs 4, Ollama 5."""
LONGEST_MANIFEST = 64 * 1024


@dataclass(frozen=True, slots=True)
class Found:
    """A model in one of the directories."""

    directory: str
    model: layout.ModelFiles


@dataclass(slots=True)
class Scan:
    """All models of a tenant, by name; of two of the same name the one in the earlier directory."""

    models: dict[str, Found] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, directory: str, model: layout.ModelFiles) -> None:
        """Take a model in."""
        if not layout.can_be_named(model.name):
            self.complain(f"{harmless(directory)} has a model whose name cannot be shown, which is left out")
        elif len(self.models) >= MOST_MODELS and model.name not in self.models:
            self.complain(f"there are more than {MOST_MODELS} models, and the rest is left out")
        else:
            self.models.setdefault(model.name, Found(directory, model))

    def complain(self, problem: str) -> None:
        """Note once what is wrong."""
        if problem not in self.problems:
            self.problems.append(problem)


def scan(folders: ModelFolders, budget: Budget, owner: int = 0) -> Scan:
    """Look at every directory that is there, as far as the budget goes.

    owner: of the links that may lead there, root but in tests.
    """
    found = Scan()
    for directory in folders.directories:
        try:
            with opened_beneath(directory, owner) as beneath:
                models = (
                    _ollama(beneath, budget, found) if folders.layout == "ollama" else _weights(beneath, budget, found)
                )
                for model in models:
                    found.add(directory, model)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            found.complain(f"{harmless(directory)} cannot be looked at ({why(error)})")
    if budget.cut:
        found.complain(budget.cut)
    return found


@contextmanager
def opened_beneath(directory: str, owner: int) -> Iterator[Beneath]:
    """A directory to open files below. Raises OSError."""
    with opened_root(directory, owner) as root:
        yield Beneath(root)


def _weights(beneath: Beneath, budget: Budget, found: Scan) -> list[layout.ModelFiles]:
    return layout.models_of_weights([path for path in _walk(beneath, "", budget, found) if layout.weights(path)])


def _ollama(beneath: Beneath, budget: Budget, found: Scan) -> Iterator[layout.ModelFiles]:
    for path in sorted(_walk(beneath, layout.MANIFESTS.rstrip("/"), budget, found)):
        name = layout.name_of_manifest(path.removeprefix(layout.MANIFESTS))
        if name is None:
            continue
        if not budget.allow():
            return
        try:
            blobs = layout.blobs_of_manifest(_read_manifest(beneath, path))
            yield layout.ModelFiles(name, tuple(layout.BLOBS + blob for blob in blobs))
        except layout.BrokenManifest as problem:
            yield layout.ModelFiles(name, (), str(problem))
        except OSError as error:
            yield layout.ModelFiles(name, (), f"its manifest cannot be read ({why(error)})")


def _read_manifest(beneath: Beneath, path: str) -> bytes:
    with beneath.file(path) as descriptor:
        content = os.read(descriptor, LONGEST_MANIFEST + 1)
    if len(content) > LONGEST_MANIFEST:
        raise layout.BrokenManifest("its manifest is too long")
    return content


def _walk(beneath: Beneath, start: str, budget: Budget, found: Scan) -> Iterator[str]:
    """The paths of all files below a folder, and of links that could be; links to folders are not entered."""
    pending = [start]
    while pending:
        folder = pending.pop()
        if len(folder.split("/")) > DEEPEST:
            found.complain(f"folders more than {DEEPEST} deep were not looked at")
            continue
        try:
            with beneath.folder(folder) as descriptor, os.scandir(descriptor) as entries:
                for entry in entries:
                    if not budget.allow_entry():
                        return
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(path)
                    elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                        yield path
        except (FileNotFoundError, NotADirectoryError, NotPlain):
            continue  # not there, or replaced since it was listed
        except OSError as error:
            found.complain(f"a folder of models cannot be looked at ({why(error)})")


def why(error: OSError) -> str:
    """What the kernel said, in words that help."""
    if error.errno in (errno.EXDEV, errno.ELOOP):
        return "a link leads out of the directory; name where it leads as a directory of its own"
    return harmless(error.strerror or str(error))
