"""Checks of what people have written: configuration files, and what units declare of themselves."""

from gpusupervisor.state import Check
from gpusupervisor.tenants.hints import Hint

LISTED = 50
"""Problems that have a check of their own."""
LISTED_OF_USERS = 10


def check_configuration(problems: tuple[str, ...], refused: tuple[str, ...]) -> tuple[Check, ...]:
    """All configuration files are understood; else a check for every problem, the first few of very many.

    refused: problems of a reload that was not taken over.
    """
    found = refused or problems
    if not found:
        return (Check("configuration", "ok", "all configuration files are valid"),)
    start = "reload failed: " if refused else ""
    impact = (
        "the previous configuration stays in force"
        if refused
        else "this file is ignored, and the tenant that it describes is not asked for anything"
    )
    remedy = "correct the file (gpusupervisorctl lint shows every problem), then systemctl reload gpusupervisor"
    return tuple(
        Check("configuration" if number == 1 else f"configuration-{number}", "degraded", start + text, impact, remedy)
        for number, text in enumerate(_first(found, LISTED), start=1)
    )


def check_hints(hints: tuple[Hint, ...]) -> tuple[Check, ...]:
    """Tenant files mean what they say: a check for everything that is allowed and hardly meant, the first few of many.

    A file that takes a shipped tenant's processes over may do so on purpose: that leaves the state of the whole as it
    is.
    """
    if not hints:
        return (Check("configuration-hints", "ok", "every tenant file means what it says"),)
    return tuple(
        Check(
            f"configuration-hint-{number}",
            "skipped" if hint.meant else "degraded",
            str(hint),
            "its processes may count as another tenant's, or as nobody's",
            "correct the file, or leave it if it is meant so, then systemctl reload gpusupervisor",
        )
        for number, hint in enumerate(hints[:LISTED], start=1)
    )


def check_declarations(problems: tuple[str, ...], of_users: tuple[str, ...]) -> tuple[Check, ...]:
    """What units declare of themselves is understood: a check for every problem, the first few of very many.

    What users' units say wrongly is shown, and leaves the state of the whole as it is: anybody can write such a unit.
    """
    impact = "the declaration is ignored; the tenant of the unit is not asked for anything until it is corrected"
    remedy = "correct its Environment= (systemctl edit UNIT), then systemctl daemon-reload"
    theirs = "the declaration is ignored"
    restart = "correct its Environment= (systemctl --user edit UNIT), and restart the unit"
    return (
        *(
            Check(f"declaration-{number}", "degraded", text, impact, remedy)
            for number, text in enumerate(_first(problems, LISTED), start=1)
        ),
        *(
            Check(f"user-declaration-{number}", "skipped", text, theirs, restart)
            for number, text in enumerate(_first(of_users, LISTED_OF_USERS), start=1)
        ),
    )


def _first(problems: tuple[str, ...], most: int) -> tuple[str, ...]:
    return problems if len(problems) <= most else (*problems[:most], f"{len(problems) - most} more problems")
