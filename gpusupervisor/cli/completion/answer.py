"""The answer to a shell."""

import sys
from collections.abc import Iterable, Sequence

from gpusupervisor.cli.completion.lines import as_bash_inserts, read
from gpusupervisor.cli.completion.position import Candidate, Expected, expected
from gpusupervisor.cli.text import safe

PROGRAM = "gpusupervisorctl"
ASKED_OF_THE_SHELL = {"file": ":files", "host": ":hosts"}


def main(arguments: Sequence[str]) -> None:
    """`complete ...`, see the package. Prints nothing when it is called in another way."""
    match arguments:
        case ["bash", text, point, breaks] if point.isdecimal():
            lines = for_bash(text[: int(point)], breaks)
        case ["zsh" | "fish", "--", *words] if words:
            lines = for_others(words)
        case _:
            return
    sys.stdout.buffer.writelines(f"{line}\n".encode(errors="surrogateescape") for line in lines)


def for_bash(text: str, breaks: str) -> Iterable[str]:
    """What bash is to insert."""
    line = read(text, breaks)
    places = [place for place, word in enumerate(line.words[:-1]) if word.rsplit("/", 1)[-1] == PROGRAM]
    if not places:
        return []
    wanted = expected(line.words[places[0] + 1 :])
    if wanted.names in ASKED_OF_THE_SHELL:
        return [ASKED_OF_THE_SHELL[wanted.names]]
    return as_bash_inserts(line, (wanted.prefix + each.value for each in candidates(wanted)))


def for_others(words: Sequence[str]) -> Iterable[str]:
    """Candidates with what they are, for shells that choose and quote themselves."""
    wanted = expected(words)
    if wanted.names in ASKED_OF_THE_SHELL:
        return [ASKED_OF_THE_SHELL[wanted.names]]
    return [f"{wanted.prefix}{each.value}\t{safe(each.about)}" for each in candidates(wanted)]


def candidates(wanted: Expected) -> list[Candidate]:
    """Words and names."""
    if not wanted.names:
        return list(wanted.words)
    from gpusupervisor.cli.completion.names import names

    return [*wanted.words, *names(wanted.names, wanted.engine)]
