"""Keys that engines ask for: kept in files of root's, read when a request is sent, and told to nobody else."""

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass

from gpusupervisor.engine_http.answer import NotAllowed

ROOT = 0
LONGEST_KEY = 4096
"""Bytes of a key file."""

_KEY = re.compile(rb"[!-~]{1,1024}")


@dataclass(frozen=True, slots=True)
class KeyFile:
    """The value of a header: what a file says, after a prefix ("Bearer "). It never holds the key itself."""

    path: str
    """Absolute."""
    prefix: str = ""


HeaderValue = str | KeyFile
Header = tuple[str, HeaderValue]


def has_key(headers: Sequence[Header]) -> bool:
    """Whether one of the values is a key."""
    return any(isinstance(value, KeyFile) for _, value in headers)


def without_keys(headers: Sequence[Header]) -> tuple[Header, ...]:
    """The headers that anybody may see."""
    return tuple(header for header in headers if not isinstance(header[1], KeyFile))


def read_headers(headers: Sequence[Header], owner: int = ROOT) -> list[tuple[str, str]]:
    """The headers with their keys filled in. Blocks. Raises NotAllowed, which names the file and never its content.

    owner: who must own the files; root but in tests.
    """
    return [
        (name, value if isinstance(value, str) else value.prefix + _read(value.path, owner)) for name, value in headers
    ]


def _read(path: str, owner: int) -> str:
    try:
        content = _content(path, owner).strip()
    except OSError as error:
        raise NotAllowed(f"its key file {path} cannot be read: {error.strerror}; {_REMEDY}") from None
    if not _KEY.fullmatch(content):
        raise NotAllowed(f"its key file {path} does not hold one key, of ASCII without blanks, and nothing else")
    return content.decode("ascii")


def _content(path: str, owner: int) -> bytes:
    """Raises OSError, and NotAllowed for a file that somebody else could have written."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != owner or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise NotAllowed(f"its key file {path} is not a file that only root can have written; {_REMEDY}")
        return os.read(descriptor, LONGEST_KEY + 1)
    finally:
        os.close(descriptor)


_REMEDY = "it must be a file of root's that the group gpusupervisor may read (chown root:gpusupervisor, chmod 640)"
