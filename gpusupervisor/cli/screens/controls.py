"""Fans and profiles."""

from collections.abc import Mapping

from rich.console import RenderableType
from rich.text import Text

from gpusupervisor.cli.screens.common import BAD, STRONG, Grid, table, text, word
from gpusupervisor.cli.shapes import Shape

NO_GPU = "No GPU is known."
_RANGE_UNITS = {"power-limit": ("W", 1000), "fans": ("%", 1)}
"""Of what is not a clock: the unit shown, and how many of the unit on the bus make one."""


def fans(of_gpus: list[Shape]) -> list[RenderableType]:
    """The fans of each GPU."""
    screen: list[RenderableType] = []
    for each in of_gpus:
        reason = each["control_reason"] or each["support_reason"]
        head = Text.assemble(text(each["name"], STRONG), "  ", word(each["control"] or each["support"]))
        screen += _next(screen, [head + text(f", {reason}") if reason else head, *_fans(each["fans"])])
    return screen or [Text(NO_GPU)]


def _next(screen: list[RenderableType], card: list[RenderableType]) -> list[RenderableType]:
    """A card that follows others: cards of one line follow each other closely."""
    apart = screen and (len(card) > 1 or isinstance(screen[-1], Grid))
    return ["", *card] if apart else card


def _fans(found: list[Shape]) -> list[RenderableType]:
    rows = [
        (str(f["fan"]), _wanted(f), f"{f['speed']} %" if "speed" in f else "?", str(f.get("rpm", "?")),
         word(f["verdict"] or "?"))
        for f in found
    ]  # fmt: skip
    return [table(("FAN", "WANTED", "SPEED", "RPM", "VERDICT"), rows, right=(0, 2, 3))] if rows else []


def _wanted(fan: Shape) -> str:
    if fan["mode"] == "fixed":
        return f"{fan['percent']} %"
    if fan["mode"] == "curve":
        return ", ".join(f"{percent} % at {degrees} °C" for degrees, percent in fan["points"])
    return text(fan["mode"]).plain


def fan_preview(gpu: Shape, previews: list[Shape]) -> list[RenderableType]:
    """What fans are to be set to, and what of it the card does not accept."""
    rows = [(str(each["fan"]), _wanted(each), _clamped(gpu, each)) for each in previews]
    return [table(("FAN", "WILL BE", "WHY"), rows, right=(0,))]


def _clamped(gpu: Shape, preview: Shape) -> str:
    asked = preview.get("asked")
    if asked is None or asked == preview["percent"]:
        return ""
    return f"the card accepts {gpu['minimum']} to {gpu['maximum']} %"


def profiles(of_gpus: list[Shape]) -> list[RenderableType]:
    """The profile of each GPU, setting by setting."""
    screen: list[RenderableType] = []
    for each in of_gpus:
        screen += _next(screen, _profile(each))
    return screen or [Text(NO_GPU)]


def _profile(shown: Shape) -> list[RenderableType]:
    head = Text.assemble(text(shown["name"], STRONG), "  ", _state(shown))
    lines: list[RenderableType] = [head]
    lines += [Text.assemble(("! ", BAD), text(shown[key])) for key in ("distrust", "problem") if shown[key]]
    if shown["trial"]:
        lines.append(text(f"on trial: {shown['trial']}"))
    results = {result["item"]: result for result in shown["results"]}
    verdicts = {verdict["item"]: verdict for verdict in shown["drift"]}
    rows = [_setting(a, results.get(a["item"]), verdicts.get(a["item"])) for a in shown["capabilities"]]
    if rows:
        lines.append(table(("SETTING", "WANTED", "STATE", "SUPPORT", "RANGE", "WHY"), rows))
    return lines


def _state(shown: Shape) -> Text:
    if shown["support"] != "supported":
        return text(shown["support_reason"])
    if not shown["profile"]:
        return Text("no profile")
    return Text.assemble(word(shown["phase"]), ", ", word(shown["drift_state"] or "not checked yet"))


def _setting(
    ability: Shape, result: Mapping[str, str] | None, verdict: Mapping[str, str] | None
) -> tuple[Text, Text, Text, Text, Text, Text]:
    wanted = result["accepted"] or result["asked"] if result else "-"
    why = (verdict and verdict["detail"]) or (result and result["detail"]) or ability["reason"]
    stands = word(verdict["verdict"]) if verdict else Text()
    return text(ability["item"]), text(wanted), stands, word(ability["support"]), Text(_range(ability)), text(why)


def _range(ability: Shape) -> str:
    if "minimum" not in ability or "maximum" not in ability:
        return ""
    unit, scale = _RANGE_UNITS.get(ability["item"], ("MHz", 1))
    return f"{ability['minimum'] // scale} to {ability['maximum'] // scale} {unit}"


def results(of_settings: list[Shape]) -> list[RenderableType]:
    """What became of each setting."""
    if not of_settings:
        return [Text("done")]
    rows = [
        (text(r["item"]), word("ok" if r["ok"] else "failed"), text(r["accepted"] or r["asked"]), text(r["detail"]))
        for r in of_settings
    ]
    return [table(("SETTING", "RESULT", "VALUE", "WHY"), rows)]
