"""Files that a person names."""

import os
import sys

from gpusupervisor.cli.exits import CommandFailed


def read(name: str, what: str, longest: int) -> str:
    """The text of a file of at most `longest` bytes; "-" is standard input.

    Raises CommandFailed when it cannot be a `what`, e.g. "profile".
    """
    if name == "-":
        return sys.stdin.read(longest)
    try:
        if os.stat(name).st_size > longest:
            raise CommandFailed(f"{name} is too large for a {what}.")
        with open(name, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise CommandFailed(f"{name} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise CommandFailed(f"{name} cannot be read: it is not text in UTF-8.") from None
