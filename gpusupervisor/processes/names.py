"""What to call a process before a person: the game, the title it gave itself, its application, else its program.

Pure. No arguments and no folders of users are told, but the name of a game's folder, which is the product's.
"""

import re
from collections.abc import Sequence

INTERPRETERS = ("python", "node", "ruby", "perl", "java")
LONGEST_TITLE = 48
"""Characters of a title that a process gave itself."""
_WRAPPERS = re.compile(
    r"wine(64)?(-preloader|server)?|electron[0-9]*|AppRun(\.wrapped)?|bwrap|exe|ld-linux.*|java|steam-launch-wrapper"
)
"""Programs that say nothing of what runs in them."""
_GAME = re.compile(r"[/\\]steamapps[/\\]common[/\\]([^/\\]{1,80})[/\\]", re.IGNORECASE)
_STEAMS_OWN = re.compile(r"(Proton|SteamLinuxRuntime|Steamworks Shared)\b.*")
_STEAM_APP = re.compile(r"app-steam-app([0-9]{1,10})(-.*)?\.(?:scope|service)")
_APPLICATION = re.compile(
    r"app-(?:flatpak-|gnome-|kde-|cinnamon-|xfce-|dbus-:[^-]*-|steam-)?(?P<app>.+?)(?:@[^@]*\.service|-[0-9]+\.scope|\.s\w+)"
    r"|snap\.(?P<snap>[^.]+)\..+"
)
"""systemd's names of applications (https://systemd.io/DESKTOP_ENVIRONMENTS), and snapd's."""
_ESCAPE = re.compile(r"\\x([0-9a-fA-F]{2})")
_LAUNCHES = ("app-", "snap.")


def name_of(executable: str, command_line: Sequence[str], comm: str, *, script: str, unit: str, user_unit: str) -> str:
    """Return the name, of the process's own words: it may contain anything.

    script: what an interpreter runs. unit, user_unit: of its cgroup.
    """
    first = "".join(command_line[:1])
    program = _base(executable) or _base(first)
    if game := _game(executable, command_line):
        return game
    steam = _STEAM_APP.fullmatch(user_unit or unit)
    if program.startswith(INTERPRETERS):
        title = _title(first)
        if title and (not script or "::" in title):
            return title
        return f"{program} {script}" if script else _within(program, unit, user_unit)
    if _WRAPPERS.fullmatch(program):
        if windows := _windows_program(command_line):
            return windows
        return f"Steam app {steam[1]}" if steam else application(unit, user_unit) or program
    return f"Steam app {steam[1]} ({program})" if steam else program or comm


def application(unit: str, user_unit: str) -> str:
    """The application that a unit was made for, e.g. "org.blender.Blender"; empty when it was made for none."""
    for name in (user_unit, unit):
        found = _APPLICATION.fullmatch(name)
        if found:
            return _ESCAPE.sub(lambda byte: chr(int(byte[1], 16)), found["app"] or found["snap"])
    return ""


def is_game(executable: str, command_line: Sequence[str], unit: str, user_unit: str) -> bool:
    """Whether it is a game, or a program for Windows: nobody describes those as tenants."""
    if _game(executable, command_line) or _STEAM_APP.fullmatch(user_unit or unit):
        return True
    return _base(executable).startswith("wine") or bool(_windows_program(command_line[:1]))


def _within(program: str, unit: str, user_unit: str) -> str:
    """An interpreter that does not say what it runs, with the application or service that it is in."""
    inside = application(unit, user_unit)
    for name in (user_unit, unit):
        if not inside and name.endswith(".service") and not name.startswith("user@"):
            inside = name.removesuffix(".service")
    return f"{program} ({inside})" if inside else program


def _game(executable: str, command_line: Sequence[str]) -> str:
    """The name of a game's folder in a library of Steam's; empty when neither program nor arguments are in one."""
    for text in (executable, *command_line[:8]):
        found = _GAME.search(text)
        if found and not _STEAMS_OWN.fullmatch(found[1]):
            return found[1]
    return ""


def _windows_program(command_line: Sequence[str]) -> str:
    """ "game" of "Z:\\games\\game.exe"; empty when no program for Windows is named."""
    for argument in command_line[:8]:
        base = re.split(r"[/\\]", argument)[-1]
        if base.lower().endswith(".exe") and len(base) > len(".exe"):
            return base[: -len(".exe")]
    return ""


def _title(first: str) -> str:
    """A title that a program wrote over its arguments, as vLLM's workers do; empty for a path or the interpreter."""
    if first.startswith(("/", "-")) or _base(first).startswith(INTERPRETERS):
        return ""
    return first.strip()[:LONGEST_TITLE]


def _base(path: str) -> str:
    return path.rsplit("/", 1)[-1].strip()
