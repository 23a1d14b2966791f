"""The sources of the manual pages, taken apart: sections, what is defined in them, examples."""

import importlib.util
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from tests.system.machine import REPOSITORY

SOURCES: Mapping[str, Path] = {
    path.name.removesuffix(".scd"): path
    for folder in ("dbus/man", "systemd/man", "gpusupervisor/*/man")
    for path in sorted(REPOSITORY.glob(f"{folder}/*.scd"))
}
"""By name and section: "gpusupervisorctl.1"."""


@dataclass(frozen=True)
class Definition:
    """Lines that name something, and the indented text below them that says what it is."""

    terms: tuple[str, ...]
    body: str

    @property
    def names(self) -> list[str]:
        """What is named, without bold, slanted and types: "*a*, *b* (text)" has two."""
        return [name for term in self.terms for name in re.findall(r"[*_]\$?([\w.-]+)=?[*_]", term.split(" (")[0])]


@cache
def expander() -> ModuleType:
    """dbus/man/expand.py, which is no part of a package."""
    spec = importlib.util.spec_from_file_location("expand", REPOSITORY / "dbus/man/expand.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["expand"] = module
    spec.loader.exec_module(module)
    return module


@cache
def page(name: str) -> str:
    """The whole page in scdoc's language, with what is taken from elsewhere."""
    return "\n".join(expander().expand(SOURCES[name].read_text()))


def parts(text: str, level: str) -> dict[str, str]:
    """The text below each heading of a level, "#" or "##"; before the first one is ""."""
    found = re.split(rf"(?m)^{level} (.*)$", text)
    return {"": found[0], **dict(zip(found[1::2], found[2::2], strict=True))}


def section(name: str, heading: str) -> str:
    """The text of one section of a page."""
    return parts(page(name), "#")[heading]


def without_examples(text: str) -> str:
    return re.sub(r"(?ms)^```$.*?^```$", "", text)


def examples(name: str) -> list[str]:
    """The literal blocks of a page, as a person copies them."""
    found = re.findall(r"(?ms)^```\n(.*?)^```$", page(name))
    return [each.replace("\\\\", "\\") for each in found]


def definitions(text: str) -> list[Definition]:
    """Everything that is defined at the left margin of a text."""
    found, terms, body = list[Definition](), list[str](), list[str]()
    for line in [*without_examples(text).splitlines(), "end"]:
        if line.startswith("\t"):
            body.append(line[1:])
        elif line or not body:
            if body and terms:
                found.append(Definition(tuple(terms), "\n".join(body)))
                terms = []
            if body or not line:
                terms = []
            body = []
            if line:
                terms.append(line.removesuffix("++"))
        else:
            body.append("")
    return found
