"""Prints a manual page in scdoc's language, with its directives replaced by text that is written elsewhere.

    python3 dbus/man/expand.py PAGE.scd | scdoc

Lines that begin with "@" are replaced:

    @interface NAME              the members of org.gpusupervisor1.NAME, as dbus/*.xml documents them
    @properties NAME             its properties, as the command line prints them in JSON
    @argument NAME.MEMBER NAME   the dictionary in an argument of a method or signal, also for JSON
    @actions                     the polkit actions
    @fields                      the fields of our entries in the journal
    @symbols                     the functions of the driver's library that not every driver has
"""

import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PREFIX = "org.gpusupervisor1."
EMITS = "org.freedesktop.DBus.Property.EmitsChangedSignal"
EMISSION = {"true": "", "const": ", constant", "invalidates": ", signalled by name", "false": ", not signalled"}

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SCALARS = {"s": "string", "o": "string", "b": "boolean", "d": "number"}
_ABOUT_SIGNALS = re.compile(r" ?(?:Signalled by name only|Sends no signal)(?:: get it when needed)?\.")


@dataclass(frozen=True)
class Member:
    """A method, signal or property, or the interface itself, with the text before it."""

    node: ET.Element
    text: str

    @property
    def name(self) -> str:
        """Its name."""
        return self.node.attrib["name"]

    @property
    def arguments(self) -> list[ET.Element]:
        """Of a method or signal."""
        return list(self.node.iter("arg"))


def interface(name: str) -> tuple[str, list[Member]]:
    """What is said of an interface, and its members in the order of the file."""
    file = REPOSITORY / "dbus" / f"{PREFIX}{name}.xml"
    root = ET.parse(file, ET.XMLParser(target=ET.TreeBuilder(insert_comments=True))).getroot()
    about, found = _documented(root)[0]
    return about, [Member(node, text) for text, node in _documented(found)]


def _documented(parent: ET.Element) -> list[tuple[str, ET.Element]]:
    """Every element with the comment before it, which begins with its name on a line of its own."""
    found, text = [], ""
    for node in parent:
        if isinstance(node.tag, str):
            found.append((text, node))
        else:
            text = (node.text or "").strip("\n").split("\n", 1)[1]
    return found


def paragraphs(text: str) -> Iterator[tuple[str, str]]:
    """("", paragraph), ("-", item of a list) or (argument, what is said of it), each on one line."""
    kind, lines = "", list[str]()
    for line in [*map(str.strip, text.splitlines()), ""]:
        begins = re.match(r"@(\w+): |(-) ", line)
        if (begins or not line) and lines:
            yield kind, " ".join(lines)
            kind, lines = "", []
        if begins:
            kind = begins[1] or begins[2]
        if line:
            lines.append(line[begins.end() :] if begins else line)


def escaped(text: str) -> str:
    """Text without meaning for scdoc, but for `commands`, which become bold."""
    text = re.sub(r"[\\*_~]", r"\\\g<0>", text)
    text = re.sub(r"`([^`]+)`", r"*\1*", text)
    return rf"\{text}" if text[0] in "#;-.[]|`" else text


def body(text: str) -> Iterator[str]:
    """The text of a member below its heading, without what the heading says already."""
    for kind, said in paragraphs(text):
        words = _ABOUT_SIGNALS.sub("", said)
        if kind == "-":
            yield f"\t- {escaped(words)}"
        elif not kind:
            yield f"\n\t{escaped(words)}"
        else:
            yield f"\n\t_{kind}_: {escaped(words)}"


def heading(member: Member) -> str:
    """A member as it is called."""
    node = member.node
    if node.tag == "property":
        [emits] = [a.attrib["value"] for a in node.iter("annotation") if a.attrib["name"] == EMITS] or ["true"]
        return f"*{member.name}* ({node.attrib['type']}{EMISSION[emits]})"
    shown = [
        " ".join(filter(None, (each.get("direction"), each.attrib["type"], f"_{each.attrib['name']}_")))
        for each in member.arguments
    ]
    return f"*{member.name}*({', '.join(shown)})"


def whole_interface(name: str) -> Iterator[str]:
    """Its section: what it is, then its methods, signals and properties."""
    about, members = interface(name)
    yield f"# {PREFIX}{name}\n"
    for kind, words in paragraphs(about):
        yield f"- {escaped(words)}" if kind else f"{escaped(words)}\n"
    for tag, title in (("method", "Methods"), ("signal", "Signals"), ("property", "Properties")):
        if chosen := [member for member in members if member.node.tag == tag]:
            yield f"\n## {title}"
            for member in chosen:
                yield f"\n{heading(member)}"
                yield "\n".join(body(member.text)).removeprefix("\n")


def snake(name: str) -> str:
    """A property's name as JSON has it."""
    return _HUMP.sub("_", name).lower()


def json_type(signature: str) -> str:
    """What a D-Bus value becomes."""
    if signature.startswith("a{"):
        return "object"
    if signature.startswith("a"):
        return f"array of {json_type(signature[1:])}s"
    return _SCALARS.get(signature, "number")


def in_json(text: str) -> str:
    """What is said of a value, where it is JSON: without D-Bus's signals and its way to say unknown."""
    said = _ABOUT_SIGNALS.sub("", " ".join(text.split()))
    return said.replace("all ones", "null").replace("All ones", "Null")


def json_properties(name: str) -> Iterator[str]:
    """The properties of an interface as keys."""
    for member in interface(name)[1]:
        if member.node.tag == "property":
            kind, text = (
                json_type(member.node.attrib["type"]),
                "\n\n".join(f"{'- ' * (mark == '-')}{in_json(p)}" for mark, p in paragraphs(member.text)),
            )
            if "null" in text.lower() and kind == "number":
                kind = "number or null"
            yield f"*{snake(member.name)}* ({kind})"
            yield "\n".join(body(text)).removeprefix("\n") + "\n"


def json_argument(where: str, argument: str) -> Iterator[str]:
    """The items of the list that says what an argument has, as keys."""
    name, wanted = where.split(".")
    [member] = [each for each in interface(name)[1] if each.name == wanted]
    parts = list(paragraphs(member.text))
    start = next(place for place, (kind, _) in enumerate(parts) if kind == argument)
    for kind, words in parts[start + 1 :]:
        if kind != "-":
            break
        keys, _, text = in_json(words).partition(": ")
        yield "++\n".join(f"*{key[1]}* ({json_type(key[2])})" for key in re.finditer(r"(\w+) \((.*?)\)", keys))
        yield f"\t{escaped(text[0].upper() + text[1:])}\n"


def actions() -> Iterator[str]:
    """The polkit actions: what they allow, and to whom by default."""
    words = {"yes": "allowed", "auth_admin": "administrator's password", "no": "refused"}
    words["auth_admin_keep"] = f"{words['auth_admin']}, kept for a while"
    for action in ET.parse(REPOSITORY / "polkit" / f"{PREFIX[:-1]}.policy").getroot().iter("action"):
        active, other = (words[action.findtext(f"defaults/{key}", "no")] for key in ("allow_active", "allow_any"))
        yield f"*{action.attrib['id']}*"
        text = action.findtext("description", "")
        yield f"\t{escaped(text)}. At the machine: {active}; elsewhere: {other}.\n"


def journal_fields() -> Iterator[str]:
    """The fields of our entries, and what each means."""
    sys.path.insert(0, str(REPOSITORY))
    from gpusupervisor.journal.fields import FIELDS  # which needs nothing that is not in the library of Python

    for field in FIELDS.values():
        yield f"_{field.journal_name}=_"
        yield f"\t{escaped(field.meaning[0].upper() + field.meaning[1:])}.\n"


def driver_functions() -> Iterator[str]:
    """The functions that older drivers lack, and what that costs."""
    sys.path.insert(0, str(REPOSITORY))
    from gpusupervisor.gpu.symbols import SYMBOLS  # likewise

    for symbol in SYMBOLS:
        if symbol.since:
            instead = f" ({escaped(symbol.otherwise)} is called instead)" if symbol.otherwise else ""
            yield f"*{escaped(symbol.name)}*, since {symbol.since}"
            yield f"\tWithout it: {escaped(symbol.without)}{instead}.\n"


def expand(page: str) -> Iterator[str]:
    """The lines of a page."""
    for line in page.splitlines():
        match line.split():
            case ["@interface", name]:
                yield from whole_interface(name)
            case ["@properties", name]:
                yield from json_properties(name)
            case ["@argument", where, argument]:
                yield from json_argument(where, argument)
            case ["@actions"]:
                yield from actions()
            case ["@fields"]:
                yield from journal_fields()
            case ["@symbols"]:
                yield from driver_functions()
            case [word, *_] if word.startswith("@"):
                raise SystemExit(f"{line}: no such directive")
            case _:
                yield line


if __name__ == "__main__":
    print("\n".join(expand(Path(sys.argv[1]).read_text())))
