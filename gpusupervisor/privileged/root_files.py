"""Files that only root could have written: read and replaced within one folder, never through a link."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MAX_BYTES = 64 * 1024
_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY | os.O_NONBLOCK


class UntrustedFile(Exception):  # noqa: N818  (named as what was found)
    """A file or folder that somebody else could have written, or that is not what it should be; the text says why."""


class RootFolder:
    """One folder; `owner` is root but in tests. Everything blocks; OSError is raised for what the disk refuses."""

    def __init__(self, path: Path, owner: int = 0) -> None:
        self._path = path
        self._owner = owner

    def names(self) -> list[str]:
        """The names of all files. Raises UntrustedFile, OSError."""
        with self._folder() as folder:
            return sorted(os.listdir(folder))

    def read(self, name: str) -> str | None:
        """The text of a file; None when there is none. Raises UntrustedFile, OSError."""
        with self._folder() as folder:
            try:
                descriptor = os.open(name, os.O_RDONLY | _OPEN, dir_fd=folder)
            except FileNotFoundError:
                return None
            except OSError as error:
                raise UntrustedFile(f"{self._path / name} cannot be opened ({error.strerror}): {_REMEDY}") from error
            with os.fdopen(descriptor, "rb") as file:
                self._check(os.fstat(descriptor), self._path / name, stat.S_ISREG, "a regular file")
                content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise UntrustedFile(f"{self._path / name} is longer than {MAX_BYTES // 1024} KiB: {_REMEDY}")
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError:
            raise UntrustedFile(f"{self._path / name} is not UTF-8: {_REMEDY}") from None

    def write(self, name: str, text: str) -> None:
        """Replace a file whole: after a crash there is the old text or the new. Raises UntrustedFile, OSError."""
        temporary = f".{name}.new"
        with self._folder() as folder:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o600, dir_fd=folder)
            with os.fdopen(descriptor, "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(descriptor)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)

    def remove(self, name: str) -> None:
        """Remove a file; one that is not there is removed already. Raises UntrustedFile, OSError."""
        with self._folder() as folder:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            os.fsync(folder)

    @contextmanager
    def _folder(self) -> Iterator[int]:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise UntrustedFile(f"{self._path} cannot be opened ({error.strerror}): {_REMEDY}") from error
        try:
            self._check(os.fstat(descriptor), self._path, stat.S_ISDIR, "a folder")
            yield descriptor
        finally:
            os.close(descriptor)

    def _check(self, status: os.stat_result, path: Path, right_kind: Callable[[int], bool], kind: str) -> None:
        if not right_kind(status.st_mode):
            raise UntrustedFile(f"{path} is not {kind}: {_REMEDY}")
        if status.st_uid != self._owner:
            raise UntrustedFile(f"{path} belongs to user {status.st_uid}, not to {self._owner}: {_REMEDY}")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UntrustedFile(f"{path} can be written by others than its owner: {_REMEDY}")


_REMEDY = "it is not used; remove it, or give it to root alone (chown root, chmod go-w)"
