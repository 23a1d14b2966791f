"""Checks of what people have written: configuration files, and what units declare of themselves."""

from gpusupervisor.state import Check

LISTED = 50
"""Problems that have a check of their own."""


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
    shown = found if len(found) <= LISTED else (*found[:LISTED], f"{len(found) - LISTED} more problems")
    return tuple(
        Check("configuration" if number == 1 else f"configuration-{number}", "degraded", start + text, impact, remedy)
        for number, text in enumerate(shown, start=1)
    )


def check_declarations(problems: tuple[str, ...]) -> tuple[Check, ...]:
    """What units declare of themselves is understood: a check for every problem, the first few of very many."""
    impact = "the declaration is ignored; the tenant of a system unit is not asked for anything until it is corrected"
    remedy = "correct its Environment= (systemctl edit UNIT), then systemctl daemon-reload; for a user unit, restart it"
    shown = problems if len(problems) <= LISTED else (*problems[:LISTED], f"{len(problems) - LISTED} more problems")
    return tuple(
        Check(f"declaration-{number}", "degraded", text, impact, remedy) for number, text in enumerate(shown, start=1)
    )
