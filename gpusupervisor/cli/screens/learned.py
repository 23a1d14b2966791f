"""What was learned."""

from collections.abc import Mapping

from gpusupervisor.cli.screens.common import STRONG, Grid, moment, size, table, text
from gpusupervisor.cli.shapes import Shape
from gpusupervisor.cli.text import brief


def all_facts(facts: list[Shape], gpus: Mapping[str, str]) -> Grid:
    """One line a fact; gpus: names by UUID."""
    rows = [
        (
            text(fact["tenant"], STRONG),
            text(" of ".join(word for word in (fact["kind"], fact["model"]) if word)),
            _value(str(fact["kind"]), fact["value"]),
            moment(fact["learned_at"]),
            text(brief(_from(fact, gpus))),
        )
        for fact in sorted(
            facts, key=lambda each: (each["tenant"], each["kind"], each["model"] or "", each["gpu"] or "")
        )
    ]
    return table(("TENANT", "WHAT", "VALUE", "LEARNED", "FROM"), rows, right=(2,), names=1)


def _value(kind: str, value: int) -> str:
    if kind == "model-use":
        return "once" if value == 1 else f"{value} times"
    return size(value) + ("/s" if kind.startswith("load-") else "")


def _from(fact: Shape, gpus: Mapping[str, str]) -> str:
    where = f" on {gpus.get(fact['gpu'], fact['gpu'])}" if fact["gpu"] else ""
    return f"{fact['source']}{where}{'' if fact['stored'] else '; not stored yet'}"
