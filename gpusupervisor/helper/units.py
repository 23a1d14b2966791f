"""Stops or restarts units of tenants: only those that a tenant file of root's names as its way to release memory."""

import asyncio
import pwd
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dbus_fast import Message, MessageType, Variant
from dbus_fast.aio import MessageBus

from gpusupervisor.bus.connection import answer_of
from gpusupervisor.bus.objects import Call, Handlers
from gpusupervisor.configuration.document import SUFFIXES, DocumentError, parse_document
from gpusupervisor.errors import NotSupported
from gpusupervisor.foreign_text import harmless
from gpusupervisor.privileged.root_files import RootFolder, UntrustedFile

LAYERS = (Path("/etc/gpusupervisor/tenants.d"), Path("/run/gpusupervisor/tenants.d"))
"""Where root's own tenant files are; the later one counts. Shipped definitions name no unit."""
PATIENCE = 10.0
"""Seconds for systemd to queue the job; its end is not waited for, since the supervisor measures what comes back."""
SYSTEMD, SYSTEMD_PATH = "org.freedesktop.systemd1", "/org/freedesktop/systemd1"
SYSTEMCTL = "/usr/bin/systemctl"
LONGEST = 30_000_000
"""Microseconds for a user's service manager to queue the job."""
_ID = re.compile(r"[A-Za-z0-9._:@-]{1,64}")
_UNIT = re.compile(r"[A-Za-z0-9:_.\\-]{1,200}(@[A-Za-z0-9:_.\\-]{0,100})?\.service")
_ACCOUNT = re.compile(r"[a-z_][a-z0-9_-]{0,31}|[0-9]{1,9}")
_NEVER = re.compile(r"(systemd-|dbus|gpusupervisor|user@|user-runtime-dir@|getty|polkit|.*display-manager).*")
"""Units without which the machine, or this service, does not work."""
_MEMBERS = {"stop": "StopUnit", "restart": "RestartUnit"}


@dataclass(frozen=True, slots=True)
class UnitRelease:
    """What a file says."""

    unit: str
    action: str
    """"stop" or "restart"."""
    user: str = ""
    """The account in whose service manager the unit is; empty for a system unit."""


def unit_release(tenant: str, layers: Sequence[Path] = LAYERS, owner: int = 0) -> UnitRelease:
    """Return the unit by which a tenant releases memory. Raises NotSupported. Blocks.

    An instance ("llama-server@8081") has that of its own file, else that of the definition's. As elsewhere, a list of a
    later layer takes the place of an earlier one's.
    """
    names = dict.fromkeys((tenant, tenant.partition("@")[0])) if _ID.fullmatch(tenant) else ()
    for name in names:
        for layer in reversed(layers):
            for release in _releases(RootFolder(layer, owner), name):
                found = _unit_of(release)
                if found is not None:
                    return found
    raise NotSupported(
        f"No tenant file of root's says that {harmless(tenant, 64)} releases memory by stopping a unit, or it names one"
        " that must not be stopped."
    )


def _releases(folder: RootFolder, name: str) -> list[object]:
    """The [[release]] tables of a tenant's file in one layer; none where there is no trusted file."""
    for suffix in SUFFIXES:
        try:
            text = folder.read(f"{name}{suffix}")
            table = parse_document(f"{name}{suffix}", text) if text else {}
        except (UntrustedFile, DocumentError, OSError):
            continue  # the supervisor's own check of the configuration says what is wrong with it
        releases = table.get("release")
        if isinstance(releases, list):
            return releases
    return []


def _unit_of(release: object) -> UnitRelease | None:
    if not isinstance(release, dict) or release.get("method") != "unit":
        return None
    user = release.get("user", "")
    unit, action = release.get("user-unit" if user else "unit"), release.get("action", "stop")
    if not isinstance(unit, str) or not _UNIT.fullmatch(unit) or action not in _MEMBERS:
        return None
    if not isinstance(user, str) or (user and not _ACCOUNT.fullmatch(user)):
        return None
    return None if _NEVER.fullmatch(unit) else UnitRelease(unit, str(action), user)


def account(user: str) -> tuple[str, int]:
    """Return name and number of an account. Raises NotSupported. Blocks."""
    try:
        found = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
    except KeyError:
        raise NotSupported(f"There is no account {user}, in whose service manager a unit is to be stopped.") from None
    return found.pw_name, found.pw_uid


def _request(wanted: UnitRelease, name: str, uid: int) -> Message:
    """What systemd is asked for: of a user's unit, a unit of its own that asks that user's service manager.

    The helper can reach no user's bus. What asks there has the user's rights and no others.
    """
    if not wanted.user:
        return _call(_MEMBERS[wanted.action], "ss", [wanted.unit, "replace"])
    words = [SYSTEMCTL, "--user", "--no-block", "--no-ask-password", wanted.action, "--", wanted.unit]
    properties = {
        "Description": Variant("s", f"{wanted.action} {wanted.unit} of {name} to release GPU memory"),
        "Type": Variant("s", "exec"),
        "User": Variant("s", name),
        "Environment": Variant("as", [f"XDG_RUNTIME_DIR=/run/user/{uid}"]),
        "ExecStart": Variant("a(sasb)", [[SYSTEMCTL, words, False]]),
        "CollectMode": Variant("s", "inactive-or-failed"),
        "RuntimeMaxUSec": Variant("t", LONGEST),
        "NoNewPrivileges": Variant("b", True),
        "CapabilityBoundingSet": Variant("t", 0),
        "PrivateNetwork": Variant("b", True),
        "PrivateDevices": Variant("b", True),
        "ProtectSystem": Variant("s", "strict"),
        "ProtectHome": Variant("s", "read-only"),
    }
    transient = f"gpusupervisor-release-{secrets.token_hex(8)}.service"
    body: list[object] = [transient, "fail", [[key, value] for key, value in properties.items()], []]
    return _call("StartTransientUnit", "ssa(sv)a(sa(sv))", body)


def _call(member: str, signature: str, body: list[object]) -> Message:
    return Message(SYSTEMD, SYSTEMD_PATH, f"{SYSTEMD}.Manager", member, signature=signature, body=body)


class UnitCalls:
    """The helper's method about units. Callers have been admitted already."""

    def __init__(self, bus: MessageBus, layers: Sequence[Path] = LAYERS, owner: int = 0) -> None:
        self._bus = bus
        self._layers = layers
        self._owner = owner

    def handlers(self) -> Handlers:
        """By method."""
        return {"ReleaseUnit": self._release}

    async def _release(self, _call: Call, tenant: str) -> list[object]:
        wanted = await asyncio.to_thread(unit_release, tenant, self._layers, self._owner)
        name, uid = await asyncio.to_thread(account, wanted.user) if wanted.user else ("", 0)
        reply = await answer_of(self._bus, _request(wanted, name, uid), PATIENCE)
        if reply is None or reply.message_type is not MessageType.METHOD_RETURN:
            said = harmless(str(reply.body[0]), 200) if reply and reply.signature.startswith("s") else "no answer"
            raise NotSupported(f"systemd did not {wanted.action} {wanted.unit}: {said}".rstrip(".") + ".")
        return [wanted.unit, wanted.action]
