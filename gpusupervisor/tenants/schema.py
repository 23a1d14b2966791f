"""The schema of tenant files: a plain table in, a `TenantDefinition` out, every problem named.

This module has the keys at the top, `[match]` and `[endpoint]`; `schema_activity.py`, `schema_models.py` and
`schema_release.py` have the rest. What is an error here never reaches the room that would have to cope with it.
"""

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from gpusupervisor.clock import UNKNOWN as INFINITY
from gpusupervisor.configuration.checking import TableReader
from gpusupervisor.configuration.document import Table
from gpusupervisor.configuration.layers import Finding
from gpusupervisor.engine_http import UNIX, is_local
from gpusupervisor.tenants.definition import ENGINES, NEEDS_AUTO, Endpoint, Match, TenantDefinition
from gpusupervisor.tenants.schema_activity import expand_probe, read_activity
from gpusupervisor.tenants.schema_http import file_complaint, flag_complaint, read_headers
from gpusupervisor.tenants.schema_models import read_models
from gpusupervisor.tenants.schema_release import read_releases

ID = re.compile(r"[A-Za-z0-9._:@-]{1,64}")
ID_HELP = "1 to 64 letters, digits or . _ : @ -"

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
"""Name of an environment variable."""

_ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}[$]?", re.ASCII)
_FINGERPRINT = re.compile(r"[0-9A-Fa-f]{64}")
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_LONGEST_PATTERN = 512
_LONGEST_INSTANCE_BASE = 40
"""Characters of a per-instance definition's id, so that "ID@LABEL" stays an id."""


def check_definition(tenant_id: str, table: Table) -> tuple[TenantDefinition | None, Sequence[Finding]]:
    """The definition in a table, or None, and everything that is wrong with it."""
    findings: list[Finding] = []
    reader = TableReader(table, findings)
    if not ID.fullmatch(tenant_id):
        reader.complain("", f"the file's name is the tenant's id; allowed: {ID_HELP}")
    definition = _read(tenant_id, reader)
    if definition.per_instance and "@" not in tenant_id and len(tenant_id) > _LONGEST_INSTANCE_BASE:
        reader.complain(
            "per-instance", f"the id is longer than {_LONGEST_INSTANCE_BASE} characters: no room for labels"
        )
    reader.finish()
    return (None if findings else definition), findings


def normalize(table: Table) -> Table:
    """The table with its shorthands written out, so that layers merge what they mean (`activity.probe`)."""
    activity = table.get("activity")
    return {**table, "activity": expand_probe(activity)} if isinstance(activity, dict) else table


def _read(tenant_id: str, reader: TableReader) -> TenantDefinition:
    if not reader.has("title"):
        reader.complain("title", 'is missing: the name that people see, e.g. title = "ComfyUI"')
    endpoint = _read_endpoint(reader)
    defaults = TenantDefinition(tenant_id, "", Match())
    return TenantDefinition(
        id=tenant_id,
        title=reader.text("title", complaint=_title_complaint),
        engine=reader.choice("engine", ENGINES),
        priority=reader.integer("priority", defaults.priority, 0, 100),
        idle_priority=_read_idle_priority(reader),
        protected=reader.boolean("protected", defaults.protected),
        per_instance=reader.boolean("per-instance", defaults.per_instance),
        match=_read_match(reader),
        endpoint=endpoint,
        activity=read_activity(reader, endpoint is not None),
        release=read_releases(reader, endpoint is not None),
        models=read_models(reader),
        needs_vram=_read_need(reader),
        floor=reader.size("floor", defaults.floor),
        spreads=reader.boolean("spreads", defaults.spreads),
        less_helps=reader.boolean("less-helps", defaults.less_helps),
        reload_spilled=reader.boolean("reload-spilled", defaults.reload_spilled),
        release_pinned=reader.boolean("release-pinned", defaults.release_pinned),
        idle_release_after=reader.duration("idle-release-after", INFINITY, _SECOND, INFINITY),
        min_residency=reader.duration("min-residency", defaults.min_residency, 0, _DAY),
        cooldown=reader.duration("cooldown", defaults.cooldown, 0, _DAY),
        release_budget=reader.integer("release-budget", defaults.release_budget, 0, 1000),
    )


def _title_complaint(text: str) -> str:
    return "is longer than 64 characters" if len(text) > 64 else ""


def _read_idle_priority(reader: TableReader) -> int | None:
    priority = reader.integer("idle-priority", -1, 0, 100)
    return priority if priority >= 0 else None


def _read_need(reader: TableReader) -> int | None:
    if reader.raw("needs-vram") == NEEDS_AUTO:
        return None
    need = reader.size("needs-vram", -1, also=f'"{NEEDS_AUTO}", or ')
    if need == 0:
        reader.complain("needs-vram", f'is 0; allowed: "{NEEDS_AUTO}", or more than 0 bytes, e.g. "13G"')
    return need if need > 0 else None


def _read_match(reader: TableReader) -> Match:
    found = Match()
    with reader.table("match") as match:
        if match is not None:
            found = Match(
                units=match.texts("units", _pattern_complaint),
                user_units=match.texts("user-units", _pattern_complaint),
                containers=match.texts("containers", _pattern_complaint),
                executables=match.texts("executables", _pattern_complaint),
                command_lines=match.texts("command-lines", _pattern_complaint),
                comms=match.texts("comms", _pattern_complaint),
                graphics_only=match.boolean("graphics-only", False),
                runners=match.texts("runners", _pattern_complaint),
                all_below=match.boolean("all-below", False),
            )
    lists = (found.units, found.user_units, found.containers, found.executables, found.command_lines, found.comms)
    if not any(lists):
        reader.complain(
            "match",
            "nothing would be recognised; at least one of: units, user-units, containers, executables, "
            "command-lines, comms",
        )
    return found


def _pattern_complaint(pattern: str) -> str:
    if len(pattern) > _LONGEST_PATTERN:
        return f"is longer than {_LONGEST_PATTERN} characters"
    if not literal_length(pattern):
        return f'is "{pattern}", which matches everything: write out at least one character'
    return ""


def literal_length(pattern: str) -> int:
    """How many characters of a glob are literal: the more, the more specific it is."""
    return len(re.sub(r"[*?]", "", re.sub(r"\[[^]]+\]", "x", pattern)))


def _read_endpoint(reader: TableReader) -> Endpoint | None:
    with reader.table("endpoint") as endpoint:
        if endpoint is None:
            return None
        if not endpoint.has("url"):
            endpoint.complain("url", 'is missing, e.g. url = "http://127.0.0.1:8188"')
        return Endpoint(
            url=endpoint.text("url", complaint=_url_complaint).rstrip("/"),
            port_flags=endpoint.texts("port-flags", flag_complaint),
            host_flags=endpoint.texts("host-flags", flag_complaint),
            tls_flags=endpoint.texts("tls-flags", flag_complaint),
            prefix_flags=endpoint.texts("prefix-flags", flag_complaint),
            host_variable=endpoint.text("host-variable", complaint=_variable_complaint),
            port_variable=endpoint.text("port-variable", complaint=_variable_complaint),
            tls_variable=endpoint.text("tls-variable", complaint=_variable_complaint),
            prefix_variable=endpoint.text("prefix-variable", complaint=_variable_complaint),
            own_port=endpoint.boolean("own-port", False),
            headers=read_headers(endpoint),
            user=endpoint.text("user", complaint=_account_complaint),
            tls_ca=endpoint.text("tls-ca", complaint=file_complaint),
            tls_fingerprint=endpoint.text("tls-fingerprint", complaint=_fingerprint_complaint).replace(":", "").lower(),
        )


def _variable_complaint(name: str) -> str:
    return "" if VARIABLE.fullmatch(name) else 'is no environment variable; allowed: e.g. "OLLAMA_HOST"'


def _account_complaint(name: str) -> str:
    return "" if _ACCOUNT.fullmatch(name) else 'is no account; allowed: a name or a number, e.g. "vllm"'


def _fingerprint_complaint(text: str) -> str:
    if _FINGERPRINT.fullmatch(text.replace(":", "")):
        return ""
    return "is no SHA-256 fingerprint; allowed: 64 hex digits, as openssl x509 -noout -fingerprint -sha256 prints them"


def _url_complaint(url: str) -> str:
    allowed = 'allowed: http or https, a host and a port, nothing else, e.g. "http://127.0.0.1:8188"'
    if url.startswith(UNIX):
        return "" if is_local(url) else f"is no Unix socket of the form unix:/PATH; {allowed}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return f"is no URL; {allowed}"
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return f"has no usable scheme, host or port; {allowed}"
    if "@" in parts.netloc or parts.path not in ("", "/") or "?" in url or "#" in url or re.search(r"[\s\\]", url):
        return f"has more than scheme, host and port; {allowed}"
    return ""
