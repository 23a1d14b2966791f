"""`fans` and `profile`: what is set on the cards, whether it stands, and setting it."""

import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from typing import Any

from gpusupervisor.cli import shapes
from gpusupervisor.cli.exits import DONE, FAILED, WRONG_USE, CommandFailed
from gpusupervisor.cli.reading import read
from gpusupervisor.cli.registry import Command, argument, typed
from gpusupervisor.cli.session import Session
from gpusupervisor.quantities import parse_duration

LONGEST_PROFILE = 64 * 1024
_POINT = re.compile(r"([0-9]{1,3}):([0-9]{1,3})%?", re.ASCII)


async def show_fans(session: Session) -> None:
    """The fans of every GPU."""
    shape = await _of(session, shapes.fans)
    if session.json:
        return session.emit(shape)
    from gpusupervisor.cli.screens.controls import fans

    return session.show(*fans(shape))


async def set_fans(session: Session) -> int:
    """Keep fans at a speed."""
    return await _command_fans(session, "SetFixed", "uu", [session.options.percent])


async def curve_fans(session: Session) -> int:
    """Let fans follow the temperature."""
    from dbus_fast import Variant

    points = [list(point) for point in session.options.points]
    given = {"hysteresis": ("u", session.options.hysteresis), "spin-down-delay": ("t", session.options.spin_down_delay),
             "zero-rpm-below": ("u", session.options.zero_rpm_below)}  # fmt: skip
    options = {name: Variant(kind, value) for name, (kind, value) in given.items() if value is not None}
    return await _command_fans(session, "SetCurve", "ua(uu)a{sv}", [points, options])


async def free_fans(session: Session) -> int:
    """Give fans back to the driver."""
    return await _command_fans(session, "SetAutomatic", "u", [])


async def _command_fans(session: Session, member: str, signature: str, body: list[Any]) -> int:
    """Show what it comes to, and do it for one fan or all unless only a preview is wanted."""
    from gpusupervisor.cli.cards import card
    from gpusupervisor.cli.client import BUS_NAME

    path, _ = await card(session, session.options.gpu)
    (shape,) = shapes.fans({path: (await session.client.objects())[path]})
    chosen = _chosen(shape, session.options.fan)
    previews = [_preview(shape, fan, session.options) for fan in chosen]
    if not session.json:
        from gpusupervisor.cli.screens.controls import fan_preview

        session.show(*fan_preview(shape, previews))
    if session.options.preview:
        if session.json:
            session.emit({"gpu": shape["uuid"], "fans": previews})
        return DONE
    if shape["support"] != "supported":
        raise CommandFailed(f"The fans of {shape['name']} cannot be set: {shape['support_reason']}", FAILED)
    for fan in chosen:
        await session.client.call(member, signature, [fan, *body], path=path, interface=f"{BUS_NAME}.Fans")
    if session.json:
        session.emit({"gpu": shape["uuid"], "fans": previews})
    else:
        session.say("Set until the helper ends. To keep it, set it in a profile: gpusupervisorctl profile apply")
    return DONE


def _chosen(shape: shapes.Shape, fan: int | None) -> list[int]:
    """The fans that are meant. Raises CommandFailed."""
    there = [each["fan"] for each in shape["fans"]]
    if fan is None:
        if not there:
            reason = shape["support_reason"] or "it has none that the driver lists"
            raise CommandFailed(f"The fans of {shape['name']} cannot be set: {reason}", FAILED)
        return there
    if there and fan not in there:
        raise CommandFailed(f"{shape['name']} has no fan {fan}: it has {', '.join(map(str, there))}", WRONG_USE)
    return [fan]


def _preview(shape: shapes.Shape, fan: int, options: Any) -> shapes.Shape:  # noqa: ANN401  (argparse's)
    """What a fan is set to, within what the card accepts."""
    low, high = shape["minimum"], shape["maximum"]

    def within(percent: int) -> int:
        return percent if low is None or high is None else min(max(percent, low), high)

    if "points" in options:
        return {
            "fan": fan,
            "mode": "curve",
            "points": [[degrees, within(percent)] for degrees, percent in options.points],
        }
    if "percent" in options:
        return {"fan": fan, "mode": "fixed", "percent": within(options.percent), "asked": options.percent}
    return {"fan": fan, "mode": "automatic"}


def _point(text: str) -> tuple[int, int]:
    """A point of a curve, e.g. "60:45" or "60:45%". Raises argparse's error, which says how it is written."""
    match = _POINT.fullmatch(text)
    if match is None:
        raise ArgumentTypeError(f"{text!r} is no point of a curve: write degrees Celsius and percent, e.g. 60:45")
    return int(match[1]), int(match[2])


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

_FAN = argument("--fan", metavar="NUMBER", help="only this fan, counted from 0; default: all", type=int)
_PREVIEW = argument("--preview", "-n", help="only show what would be set", action="store_true")

COMMANDS = (
    Command(
        "fans",
        "show every fan: its setting, and whether it follows",
        show_fans,
        (_SHOWN_GPU,),
        (
            Command("set", "keep fans at a speed until the helper ends", set_fans, (
                argument("percent", metavar="PERCENT", help="the speed, limited to what the card accepts", type=int),
                _FAN, _PREVIEW, _GPU,
            )),
            Command("curve", "have fans follow the temperature until the helper ends", curve_fans, (
                argument("points", metavar="DEGREES:PERCENT", nargs="+", type=_point,
                         help="2 to 32 points, rising, e.g. 40:30 60:45 80:100"),
                argument("--hysteresis", metavar="DEGREES", type=int,
                         help="how much cooler it must be before fans slow down; default: 3"),
                argument("--spin-down-delay", metavar="TIME", type=typed(parse_duration),
                         help="how long it must stay that cool; default: 5s"),
                argument("--zero-rpm-below", metavar="DEGREES", type=int,
                         help="below this the driver controls the fans and may stop them; default: never"),
                _FAN, _PREVIEW, _GPU,
            )),
            Command("auto", "return fans to the driver's automatic control", free_fans, (_FAN, _PREVIEW, _GPU)),
        ),
    ),
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
