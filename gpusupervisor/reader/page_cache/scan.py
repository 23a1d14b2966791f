"""Enumerating the models below a tenant's directories: bounded in count, depth and time. Blocks."""

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from gpusupervisor.foreign_text import harmless
from gpusupervisor.reader.page_cache import layout
from gpusupervisor.reader.page_cache.beneath import Beneath, NotPlain, opened_root
from gpusupervisor.tenants.definition import ModelFolders

MOST_ENTRIES = 20_000
"""Files and folders that are looked at, of one tenant."""
MOST_MODELS = 2_000
DEEPEST = 8
"""Folders below each other; the Hub's cache needs 4, Ollama 5."""
LONGEST = 5.0
"""Seconds for all of a tenant."""
LONGEST_MANIFEST = 64 * 1024


@dataclass(slots=True)
class Limits:
    """What is left of what one look may take."""

    entries: int = MOST_ENTRIES
    until: float = field(default_factory=lambda: time.monotonic() + LONGEST)
    cut: str = ""
    """What it ran into; empty while all is seen."""

    def allow(self) -> bool:
        """Whether one more entry may be looked at."""
        self.entries -= 1
        if self.entries < 0:
            self.cut = f"there are more than {MOST_ENTRIES} files, and the rest was not looked at"
        elif time.monotonic() > self.until:
            self.cut = f"to list the files takes longer than {LONGEST:g} s, and the rest was not looked at"
        return not self.cut


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


def scan(folders: ModelFolders, owner: int = 0) -> Scan:
    """Look at every directory that is there. owner: of the links that may lead there, root but in tests."""
    found, limits = Scan(), Limits()
    for directory in folders.directories:
        try:
            with opened_beneath(directory, owner) as beneath:
                models = (
                    _ollama(beneath, limits, found) if folders.layout == "ollama" else _weights(beneath, limits, found)
                )
                for model in models:
                    found.add(directory, model)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            found.complain(f"{harmless(directory)} cannot be looked at ({why(error)})")
    if limits.cut:
        found.complain(limits.cut)
    return found


@contextmanager
def opened_beneath(directory: str, owner: int) -> Iterator[Beneath]:
    """A directory to open files below. Raises OSError."""
    with opened_root(directory, owner) as root:
        yield Beneath(root)


def _weights(beneath: Beneath, limits: Limits, found: Scan) -> list[layout.ModelFiles]:
    return layout.models_of_weights([path for path in _walk(beneath, "", limits, found) if layout.weights(path)])


def _ollama(beneath: Beneath, limits: Limits, found: Scan) -> Iterator[layout.ModelFiles]:
    for path in sorted(_walk(beneath, layout.MANIFESTS.rstrip("/"), limits, found)):
        name = layout.name_of_manifest(path.removeprefix(layout.MANIFESTS))
        if name is None:
            continue
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


def _walk(beneath: Beneath, start: str, limits: Limits, found: Scan) -> Iterator[str]:
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
                    if not limits.allow():
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
