"""Opening what is below a directory, and nothing that links lead to elsewhere.

The directory itself is named by root: links on the way to it are followed when root made them. What is below it
belongs to whoever runs the engine, who could point a link at anything.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from gpusupervisor.reader.page_cache import system_calls

MOST_LINKS = 40
"""As the kernel has it."""
_PATH = os.O_PATH | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class NotPlain(OSError):  # noqa: N818  (it names a state)
    """Neither a regular file nor a directory, where one was to be opened."""


@contextmanager
def opened_root(path: str, owner: int = 0) -> Iterator[int]:
    """A descriptor of a directory by its absolute path. Raises OSError; ELOOP for a link that is not the owner's.

    owner: root but in tests.
    """
    pending = path.split("/")[::-1]
    links = 0
    with _Held(os.open("/", _PATH | os.O_DIRECTORY)) as here:
        while pending:
            step = pending.pop()
            if not step:
                continue
            following = os.open(step, _PATH | os.O_NOFOLLOW, dir_fd=here.descriptor)
            status = os.fstat(following)
            if not stat.S_ISLNK(status.st_mode):
                here.move(following)
                continue
            target = os.readlink("", dir_fd=following)
            os.close(following)
            links += 1
            if status.st_uid not in (0, owner) or links > MOST_LINKS:
                raise OSError(errno.ELOOP, "a link of another user than root is on the way", path)
            if target.startswith("/"):
                here.move(os.open("/", _PATH | os.O_DIRECTORY))
            pending += target.split("/")[::-1]
        with _reopened(here.descriptor, stat.S_ISDIR, path) as root:
            yield root


class Beneath:
    """Opens below one directory; links are followed as long as they stay below it."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._has_openat2 = system_calls.has_openat2()

    @contextmanager
    def file(self, path: str) -> Iterator[int]:
        """A descriptor to read a regular file. Raises OSError; NotPlain for another kind, which is not opened."""
        descriptor = self._find(path)
        try:
            with _reopened(descriptor, stat.S_ISREG, path) as opened:
                yield opened
        finally:
            os.close(descriptor)

    @contextmanager
    def folder(self, path: str) -> Iterator[int]:
        """A descriptor to list a directory; an empty path is the root. Raises OSError."""
        descriptor = self._find(path) if path else os.dup(self._root)
        try:
            with _reopened(descriptor, stat.S_ISDIR, path) as opened:
                yield opened
        finally:
            os.close(descriptor)

    def _find(self, path: str) -> int:
        """A descriptor that only names what is there: nothing was opened yet."""
        if self._has_openat2:
            resolve = system_calls.RESOLVE_BENEATH | system_calls.RESOLVE_NO_MAGICLINKS
            return system_calls.openat2(self._root, path, _PATH, resolve)
        return self._walk(path)

    def _walk(self, path: str) -> int:
        """What openat2(2) does, step by step: nothing is left but by the descriptors of the way that led here."""
        if {"", ".", ".."} & {*path.split("/")}:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
        pending, links = path.split("/")[::-1], 0
        with ExitStack() as opened:
            way = [self._root]
            while pending:
                step = pending.pop()
                if step == ".." and len(way) > 1:
                    way.pop()
                elif step == "..":
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
                elif step not in ("", "."):
                    found = os.open(step, _PATH | os.O_NOFOLLOW, dir_fd=way[-1])
                    opened.callback(os.close, found)
                    if not stat.S_ISLNK(os.fstat(found).st_mode):
                        way.append(found)
                        continue
                    target = os.readlink("", dir_fd=found)
                    links += 1
                    if links > MOST_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                    if target.startswith("/"):
                        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
                    pending += target.split("/")[::-1]
            return os.dup(way[-1])


class _Held:
    """A descriptor that is closed when another takes its place, and at the end."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __enter__(self) -> "_Held":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            os.close(self.descriptor)

    def move(self, descriptor: int) -> None:
        os.close(self.descriptor)
        self.descriptor = descriptor


@contextmanager
def _reopened(named: int, right_kind: Callable[[int], bool], path: str) -> Iterator[int]:
    """The very file that a descriptor names, open for reading; one of another kind is never opened."""
    if not right_kind(os.fstat(named).st_mode):
        raise NotPlain(
            errno.EINVAL, "it is no regular file" if right_kind is stat.S_ISREG else "it is no directory", path
        )
    descriptor = os.open(f"/proc/self/fd/{named}", _READ)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
