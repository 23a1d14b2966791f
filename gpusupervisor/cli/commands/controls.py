"""`fans` and `profile`: what is set on the cards, whether it stands, and setting it."""

from collections.abc import Callable, Mapping
from typing import Any

from gpusupervisor.cli import shapes
from gpusupervisor.cli.exits import DONE, FAILED
from gpusupervisor.cli.reading import read
from gpusupervisor.cli.registry import Command, argument, typed
from gpusupervisor.cli.session import Session
from gpusupervisor.quantities import parse_duration

LONGEST_PROFILE = 64 * 1024


async def show_fans(session: Session) -> None:
    """The fans of every GPU."""
    shape = await _of(session, shapes.fans)
    if session.json:
        return session.emit(shape)
    from gpusupervisor.cli.screens.controls import fans

    return session.show(*fans(shape))


async def show_profiles(session: Session) -> None:
    """The profile of every GPU, whether it stands, and what could be set."""
    shape = await _of(session, shapes.profiles)
    if session.json:
        return session.emit(shape)
    from gpusupervisor.cli.screens.controls import profiles

    return session.show(*profiles(shape))


async def try_profile(session: Session) -> int:
    """Set a profile that goes back by itself unless it is confirmed."""
    profile = read(session.options.file, "profile", LONGEST_PROFILE)
    return await _set(session, "Try", "st", [profile, session.options.within], note="gpusupervisorctl profile confirm")


async def apply_profile(session: Session) -> int:
    """Set a profile and keep it."""
    return await _set(session, "Apply", "s", [read(session.options.file, "profile", LONGEST_PROFILE)])


async def confirm(session: Session) -> int:
    """Keep the profile on trial."""
    return await _set(session, "Confirm")


async def revert(session: Session) -> int:
    """End the trial."""
    return await _set(session, "Revert")


async def reset(session: Session) -> int:
    """Back to the card's defaults."""
    return await _set(session, "Reset")


async def _set(
    session: Session, member: str, signature: str = "", body: list[Any] | None = None, note: str = ""
) -> int:
    from gpusupervisor.cli.cards import card
    from gpusupervisor.cli.client import BUS_NAME

    path, _ = await card(session, session.options.gpu)
    results = await session.client.call(member, signature, body or [], path=path, interface=f"{BUS_NAME}.Profile")
    shape = {"results": shapes.known(results or [])}
    if session.json:
        session.emit(shape)
    else:
        from gpusupervisor.cli.screens.controls import results as screen

        session.show(*screen(shape["results"]))
        if note:
            session.say(f"It is reverted unless you confirm it: {note}")
    return DONE if all(each["ok"] for each in shape["results"]) else FAILED


async def _of(session: Session, shape_of: Callable[[Mapping[str, Any]], list[shapes.Shape]]) -> list[shapes.Shape]:
    """The shape of every GPU, or of the one that is asked for."""
    objects = await session.client.objects()
    if session.options.gpu:
        from gpusupervisor.cli.cards import find

        path, _ = find(objects, session.options.gpu)
        objects = {path: objects[path]}
    return shape_of(objects)


_GPU = argument(
    "--gpu", metavar="GPU", help="its index, name or UUID; default: the only one", completes="gpu", default=""
)
_SHOWN_GPU = argument("--gpu", metavar="GPU", help="its index, name or UUID; default: all", completes="gpu", default="")
_FILE = argument("file", metavar="FILE", help="the profile, in JSON; - for standard input", completes="file")

COMMANDS = (
    Command("fans", "show every fan: its setting, and whether it follows", show_fans, (_SHOWN_GPU,)),
    Command(
        "profile",
        "show power and clocks: what is set, what drifted",
        show_profiles,
        (_SHOWN_GPU,),
        (
            Command(
                "try",
                "set a profile on trial; it is reverted unless confirmed",
                try_profile,
                (
                    _FILE,
                    argument("--within", metavar="TIME", help='duration of the trial, e.g. "1min"; default: 30s',
                             type=typed(parse_duration), default=30_000_000),
                    _GPU,
                ),
            ),
            Command("confirm", "keep the profile on trial", confirm, (_GPU,)),
            Command("revert", "end the trial and restore the previous state", revert, (_GPU,)),
            Command("apply", "set a profile and keep it; it is safer to try it first", apply_profile, (_FILE, _GPU)),
            Command("reset", "restore the card's defaults and forget the profile", reset, (_GPU,)),
        ),
    ),
)  # fmt: skip
