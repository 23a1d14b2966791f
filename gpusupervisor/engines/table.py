"""What is known of an engine's settings, as data: where each is given, and what it means for who shares the card."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Takes = Literal["nothing", "one", "optional", "many"]
"""How many arguments a flag has: none, one, one or none, any number up to the next flag."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """How an engine reads its command line; the last one of a flag counts everywhere."""

    equals: bool = True
    """"--flag=value" is "--flag value"."""
    abbreviations: bool = False
    """An unambiguous beginning of a long flag is that flag (Python's argparse)."""
    underscores: bool = False
    """"--a_b" is "--a-b"."""
    one_dash: bool = False
    """"-flag" is "--flag" (Go's flag package)."""


ARGPARSE = Grammar(abbreviations=True)
FLEXIBLE_ARGPARSE = Grammar(abbreviations=True, underscores=True)
"""vLLM's."""
LLAMA_CPP = Grammar(equals=False, underscores=True)
GO_FLAG = Grammar(one_dash=True)
EXACT = Grammar()


@dataclass(frozen=True, slots=True)
class Facts:
    """What the meaning or the default of a setting may depend on."""

    value: str
    """Its own value, as it was given; empty for a flag without one."""
    known: Mapping[str, str]
    """Values of the engine's settings by name: the given ones, and those that its API tells."""
    version: str = ""
    """As the engine reports it; empty when that is not known."""


@dataclass(frozen=True, slots=True)
class Known:
    """One setting."""

    name: str
    meaning: str | Callable[[Facts], str]
    """One sentence; an empty one: not worth showing at this value."""
    flags: tuple[str, ...] = ()
    unset_by: tuple[str, ...] = ()
    """Flags that take it back when they come later."""
    takes: Takes = "one"
    variables: tuple[str, ...] = ()
    """Environment variables, the one that counts most first; every flag beats them."""
    off_variables: tuple[str, ...] = ()
    """Environment variables that set it by a false value: LLAMA_ARG_KV_OFFLOAD=0 is --no-kv-offload."""
    keys: tuple[str, ...] = ()
    """Its names in the engine's configuration file, the one that counts most first."""
    understood: Callable[[str], bool] = lambda _text: True
    """Whether the engine can read a value; one that it cannot read it passes over."""
    is_set: Callable[[str], bool] = lambda _text: True
    """Whether a variable with this value counts as given: some engines take an empty one for none."""
    default: Callable[[Facts], str | None] = lambda _facts: None
    """The documented default of the version at hand, when that is worth telling."""
    secret: bool = False
    """Only that it is set is shown."""
    of_answer: Callable[[str], str] = lambda text: text
    """Its value out of what the API says of it; empty when it is not in it."""

    def means(self, facts: Facts) -> str:
        """What follows from a value."""
        return self.meaning if isinstance(self.meaning, str) else self.meaning(facts)


@dataclass(frozen=True, slots=True)
class Call:
    """A passive question to the engine's own API, and what its answer tells."""

    path: str
    version: str = ""
    """JMESPath to the version in the answer."""
    older: str = ""
    """What the same question was called before; asked where the path is not there."""
    tells: Sequence[tuple[str, str]] = ()
    """(name of a setting, JMESPath to its value) each; a value that is null or of another shape tells nothing."""


@dataclass(frozen=True, slots=True)
class Table:
    """All that is known of one engine."""

    engine: str
    settings: tuple[Known, ...]
    checked_against: str = ""
    """The version of the engine whose sources they were compared with, or "of" a month; empty when not recorded."""
    grammar: Grammar = ARGPARSE
    arguments_variable: str = ""
    """An environment variable with more arguments (A1111's COMMANDLINE_ARGS)."""
    calls: tuple[Call, ...] = field(default=())
    flags_are_keys: bool = False
    """Its configuration file has flags without their dashes, and variables, as keys."""
    file_beats_flags: bool = False
    """What its configuration file sets counts more than its command line."""

    def variables(self) -> frozenset[str]:
        """All environment variables that it may be set by."""
        more = {self.arguments_variable} if self.arguments_variable else set()
        return frozenset(more.union(*((*known.variables, *known.off_variables) for known in self.settings)))

    def keys_of(self, known: Known) -> tuple[str, ...]:
        """Names of a setting in the configuration file."""
        if not self.flags_are_keys:
            return known.keys
        return (*known.keys, *(flag.lstrip("-") for flag in known.flags), *known.variables)

    def undoing_keys_of(self, known: Known) -> tuple[str, ...]:
        """Keys of the opposite: "slots" where the setting is --no-slots."""
        if not self.flags_are_keys:
            return ()
        return (*(flag.lstrip("-") for flag in known.unset_by), *known.off_variables)

    def file_keys(self) -> frozenset[str]:
        """All keys of its configuration file that are known."""
        both = (self.keys_of, self.undoing_keys_of)
        return frozenset(key for known in self.settings for keys in both for key in keys(known))
