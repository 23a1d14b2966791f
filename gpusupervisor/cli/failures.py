"""What a person is told when the service cannot be reached or refuses: its own words, and what to do next."""

import shlex
import sys
from typing import NamedTuple

from gpusupervisor.cli.exits import FAILED, NOT_ALLOWED, NOT_RUNNING, WRONG_USE, CommandFailed

BUS_LOST = "The connection to the system bus is lost."

_FREEDESKTOP = "org.freedesktop.DBus.Error."
_NOT_ANSWERING = (
    f"{_FREEDESKTOP}NoReply",
    f"{_FREEDESKTOP}TimedOut",
    f"{_FREEDESKTOP}NameHasNoOwner",
    f"{_FREEDESKTOP}Spawn.",  # activation failed
    "org.freedesktop.systemd1.",  # activation through systemd did
)
"""Beginnings of error names."""

_MASKED = ("org.freedesktop.systemd1.UnitMasked", f"{_FREEDESKTOP}FileExists")
"""The second is for a unit that was enabled before it was masked."""


class Place(NamedTuple):
    """The machine whose service is meant."""

    host: str = ""
    """As given to ssh; empty for this machine."""

    @property
    def there(self) -> str:
        """ " on HOST", or nothing."""
        return f" on {self.host}" if self.host else ""

    @property
    def login(self) -> list[str]:
        """What ssh is given for [USER@]HOST[:PORT]; an address of IPv6 with a port is in brackets."""
        name, port = self.host, ""
        head, colon, tail = name.rpartition(":")
        if colon and tail.isdigit() and (":" not in head or head.endswith("]")):
            name, port = head, tail
        user, at, address = name.rpartition("@")
        address = address.removeprefix("[").removesuffix("]")
        if not address or address.startswith("-") or user.startswith("-"):
            raise CommandFailed(f"{self.host!r} is not a machine; it is [USER@]HOST[:PORT].", WRONG_USE)
        return [*(["-p", port] if port else []), user + at + address]

    def command(self, command: str, *, terminal: bool = False) -> str:
        """A command as it is typed here to be run there."""
        words = ["ssh", *(["-t"] if terminal else []), *self.login] if self.host else []
        return " ".join([*words, command])

    def no_bus(self, error: BaseException) -> str:
        """The bus cannot be reached."""
        if self.host:
            return (
                f"No connection to the system bus of {self.host} ({_of(error)}).\n"
                "It needs an ssh login that prints nothing, and systemd-stdio-bridge there.\n"
                f"Try it with: {self.command('systemd-stdio-bridge')}"
            )
        return (
            f"No system bus to talk to ({_of(error)}).\n"
            "In a container without one, ask the machine itself:\n"
            "gpusupervisorctl -H USER@HOST"
        )


def _of(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or "it hung up"


class AuthorizationNeeded(CommandFailed):
    """polkit wants a password, and no agent is registered that could ask for it."""


def failure(name: str, text: str, place: Place) -> CommandFailed:
    """The error reply of a call, for a person. `name` and `text`: as it came over D-Bus."""
    if name == f"{_FREEDESKTOP}ServiceUnknown":
        return _not_running(
            place,
            f"It is not installed, or the bus has not noticed it yet ({place.command('systemctl reload dbus')}).",
        )
    if name in _MASKED:
        return _not_running(place, "It is masked; allow it with: " + place.command("systemctl unmask gpusupervisor"))
    if name == "org.freedesktop.systemd1.NoSuchUnit":
        return _not_running(place, "It is installed, but not enabled.")
    if name.startswith(_NOT_ANSWERING):
        return _not_running(place, text)
    if name == f"{_FREEDESKTOP}InteractiveAuthorizationRequired":
        return AuthorizationNeeded("\n".join((text, *_how_to_authorize(place))), NOT_ALLOWED)
    return CommandFailed(text or name, NOT_ALLOWED if name == f"{_FREEDESKTOP}AccessDenied" else FAILED)


def stopped(unit_file_state: str, place: Place) -> CommandFailed:
    """The error when nobody owns the service's name. unit_file_state: as systemctl is-enabled; empty if unknown."""
    if unit_file_state.startswith("masked"):
        return failure("org.freedesktop.systemd1.UnitMasked", "", place)
    return _not_running(place, "It was stopped, or has not been started yet." if unit_file_state else "")


def _not_running(place: Place, why: str) -> CommandFailed:
    return CommandFailed(
        f"gpusupervisor is not running{place.there}.\n{why}".rstrip()
        + f"\nSee why with: {place.command('systemctl status gpusupervisor')}"
        + f"\nStart it with: {place.command('systemctl enable --now gpusupervisor')}",
        NOT_RUNNING,
    )


def _how_to_authorize(place: Place) -> list[str]:
    """What to do where polkit would ask for a password, but has no agent to ask through."""
    if place.host:
        return [f"No password can be asked for over ssh; log in as root: -H root@{place.host.split('@')[-1]}"]
    return ["No polkit agent could ask for a password here. Run it as root:", f"sudo {_this_command()}"]


def _this_command() -> str:
    """This run, as it is typed."""
    return shlex.join(["gpusupervisorctl", *sys.argv[1:]])
