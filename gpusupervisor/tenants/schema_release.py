"""The schema of `[[release]]`: the ladder of ways to ask a tenant for its memory."""

import re
from typing import Literal

from gpusupervisor.configuration.checking import TableReader
from gpusupervisor.tenants.definition import Condition, ForEach, ReleaseMethod, VersionRequirement, WhenBusy
from gpusupervisor.tenants.schema_http import (
    expression_complaint,
    path_complaint,
    query_complaint,
    read_headers,
)

ITEM = "{item}"
"""What stands for the current item of `for-each`."""

_SECOND = 1_000_000
_VERBS = ("get", "post", "put", "delete")
_WHEN_BUSY: dict[str, WhenBusy] = {
    "deferred": "deferred", "refused": "refused", "destructive": "destructive",
}  # fmt: skip
METHODS = ("http", "unit")
_ACTIONS: dict[str, Literal["stop", "restart"]] = {"stop": "stop", "restart": "restart"}
_UNIT = re.compile(r"[A-Za-z0-9:_.\\-]{1,200}(@[A-Za-z0-9:_.\\-]{0,100})?\.service")
_ACCOUNT = re.compile(r"[a-z_][a-z0-9_-]{0,31}|[0-9]{1,9}")
_VERSION = re.compile(r"\d{1,9}(\.\d{1,9}){0,5}")


def read_releases(reader: TableReader, has_endpoint: bool) -> tuple[ReleaseMethod, ...]:
    """The rungs, in the order of the file."""
    rungs = []
    for rung in reader.tables("release"):
        if rung.raw("method") == "unit":
            rungs.append(_read_unit(rung))
            continue
        if not has_endpoint:
            rung.complain("method", "[endpoint] with a url is missing: nobody can be asked")
        rungs.append(_read_release(rung))
    return tuple(rungs)


def _read_release(rung: TableReader) -> ReleaseMethod:
    rung.choice("method", METHODS, "http")
    verb, path = _read_request(rung)
    query = rung.pairs("query", query_complaint)
    headers = read_headers(rung)
    body = rung.raw("json")
    if body is not None and verb == "GET":
        rung.complain("json", "a GET has no body: use post, put or delete")
    for_each = _read_for_each(rung)
    _check_item(rung, for_each is not None, (path, query, headers, body))
    default = ReleaseMethod("http", "", "")
    return ReleaseMethod(
        method="http",
        verb=verb,
        path=path,
        query=query,
        json=body,
        headers=headers,
        for_each=for_each,
        success_when=rung.text("success-when", complaint=expression_complaint),
        when_busy=_WHEN_BUSY.get(rung.choice("when-busy", tuple(_WHEN_BUSY), default.when_busy), default.when_busy),
        version=_read_version(rung),
        only_if=_read_condition(rung),
        settle=rung.duration("settle", default.settle, 100_000, 600 * _SECOND),
        timeout=rung.duration("timeout", default.timeout, 100_000, 120 * _SECOND),
    )


def _read_unit(rung: TableReader) -> ReleaseMethod:
    rung.choice("method", METHODS)
    if rung.has("user-unit") and rung.has("unit"):
        rung.complain("user-unit", "is given beside unit: one of the two can be stopped")
    elif not rung.has("user-unit") and not rung.has("unit"):
        rung.complain("unit", 'is missing: the system unit to stop, e.g. unit = "llama-server.service"')
    if rung.has("user-unit") != rung.has("user"):
        missing = "user" if rung.has("user-unit") else "user-unit"
        rung.complain(missing, 'is missing, e.g. user-unit = "llama-server.service" and user = "alice"')
    default = ReleaseMethod("unit")
    return ReleaseMethod(
        method="unit",
        unit=rung.text("unit", complaint=_unit_complaint),
        user_unit=rung.text("user-unit", complaint=_unit_complaint),
        user=rung.text("user", complaint=_account_complaint),
        action=_ACTIONS.get(rung.choice("action", tuple(_ACTIONS), default.action), default.action),
        settle=rung.duration("settle", default.settle, 100_000, 600 * _SECOND),
    )


def _read_request(rung: TableReader) -> tuple[str, str]:
    paths = {verb: rung.text(verb, complaint=path_complaint) for verb in _VERBS}
    given = [verb for verb in _VERBS if rung.has(verb)]
    if len(given) != 1:
        what = f"has {' and '.join(given)}" if given else "has no request"
        rung.complain("", f'{what}; exactly one of {", ".join(_VERBS)} is needed, e.g. post = "/free"')
        return "", ""
    return given[0].upper(), paths[given[0]]


def _read_for_each(rung: TableReader) -> ForEach | None:
    with rung.table("for-each") as each:
        if each is None:
            return None
        for key, example in (("get", 'get = "/api/ps"'), ("items", 'items = "models[].name"')):
            if not each.has(key):
                each.complain(key, f"is missing, e.g. {example}")
        return ForEach(each.text("get", complaint=path_complaint), each.text("items", complaint=expression_complaint))


def _check_item(rung: TableReader, has_items: bool, places: object) -> None:
    """{item} without a list would be sent as it stands; a list without {item} would send the same again."""
    if ITEM in _texts(places) and not has_items:
        rung.complain("for-each", f"{ITEM} is used, but no for-each says which items")
    if has_items and ITEM not in _texts(places):
        rung.complain("for-each", f"{ITEM} is used nowhere: put it into the path, query, headers or json")


def _texts(value: object) -> str:
    """All texts in a value, keys apart."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "\n".join(_texts(item) for item in value.values())
    if isinstance(value, list | tuple):
        return "\n".join(_texts(item) for item in value)
    return ""


def _read_version(rung: TableReader) -> VersionRequirement | None:
    with rung.table("version") as version:
        if version is None:
            return None
        for key, example in (
            ("get", 'get = "/api/version"'), ("value", 'value = "version"'), ("minimum", 'minimum = "0.3.11"'),
        ):  # fmt: skip
            if not version.has(key):
                version.complain(key, f"is missing, e.g. {example}")
        return VersionRequirement(
            version.text("get", complaint=path_complaint),
            version.text("value", complaint=expression_complaint),
            version.text("minimum", complaint=_version_complaint),
        )


def _read_condition(rung: TableReader) -> Condition | None:
    with rung.table("only-if") as condition:
        if condition is None:
            return None
        for key, example in (("get", 'get = "/props"'), ("when", 'when = "models_autoload"')):
            if not condition.has(key):
                condition.complain(key, f"is missing, e.g. {example}")
        return Condition(
            condition.text("get", complaint=path_complaint), condition.text("when", complaint=expression_complaint)
        )


def _unit_complaint(text: str) -> str:
    return "" if _UNIT.fullmatch(text) else 'is no service; allowed: a unit\'s name, e.g. "llama-server.service"'


def _account_complaint(name: str) -> str:
    return "" if _ACCOUNT.fullmatch(name) else 'is no account; allowed: a name or a number, e.g. "alice"'


def _version_complaint(text: str) -> str:
    return "" if _VERSION.fullmatch(text) else 'is no version; allowed: numbers with dots, e.g. "0.3.11"'
