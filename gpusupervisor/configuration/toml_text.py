"""A tree of sourced values as TOML text, with the file each value came from."""

import json
import re

from gpusupervisor.configuration.layers import Sourced, Tree

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(tree: Tree) -> str:
    """The whole tree; every line with a value ends in "# from FILE"."""
    return "\n".join(_table_lines(tree, ())).strip() + "\n"


def _table_lines(tree: Tree, path: tuple[str, ...]) -> list[str]:
    lines: list[str] = []
    tables: list[str] = []
    for key, value in tree.items():
        if not isinstance(value, Sourced):
            inner = (*path, key)
            tables += ["", f"[{_dotted(inner)}]", *_table_lines(value, inner)]
        elif _is_list_of_tables(value.value):
            tables += _list_lines(value, (*path, key))
        else:
            lines.append(f"{_key(key)} = {_inline(value.value)}  # from {value.file}")
    return lines + tables


def _is_list_of_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _list_lines(value: Sourced, path: tuple[str, ...]) -> list[str]:
    """Each table of the list under its [[header]]; what is nested in it inline."""
    lines: list[str] = []
    assert isinstance(value.value, list)
    for item in value.value:
        lines += ["", f"[[{_dotted(path)}]]  # from {value.file}"]
        lines += [f"{_key(key)} = {_inline(inner)}  # from {value.file}" for key, inner in item.items()]
    return lines


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(_key(key) for key in path)


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _quoted(key)


def _quoted(text: str) -> str:
    """A basic string: JSON's escapes are TOML's, but for DEL and what would steer a terminal."""
    quoted = json.dumps(text, ensure_ascii=False)
    return re.sub(r"[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", lambda char: f"\\u{ord(char[0]):04x}", quoted)


def _inline(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        pairs = ", ".join(f"{_key(key)} = {_inline(inner)}" for key, inner in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list):
        return f"[{', '.join(_inline(inner) for inner in value)}]"
    return _quoted(value) if isinstance(value, str) else repr(value)
