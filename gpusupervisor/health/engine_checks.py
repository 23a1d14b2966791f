"""Self-checks of what engines are set to."""

from collections.abc import Mapping

from gpusupervisor.processes.privileged import Sight
from gpusupervisor.state import Check, EngineStatus

NAMED = 4
"""Settings, or things that are hidden, that a check names."""
_IN_TROUBLE = ("missing", "refused", "failing")
"""States of the sight in which what is hidden stays so."""


def check_engines(engines: Mapping[str, EngineStatus], sight: Sight) -> tuple[Check, ...]:
    """What engines are configured to is in force, and can be seen.

    sight: while it is well, what is hidden of an engine is only not looked up yet.
    """
    blind = sight.state in _IN_TROUBLE
    return tuple(check for engine in engines.values() if (check := _engine(engine, blind=blind)) is not None)


def _engine(engine: EngineStatus, *, blind: bool) -> Check | None:
    """None for an engine of which nothing was looked up: it does not run here."""
    name, pending = f"engine-{engine.id}", [setting.name for setting in engine.settings if setting.pending]
    if pending:
        listed = ", ".join(pending[:NAMED]) + (" and others" if len(pending) > NAMED else "")
        return Check(
            name,
            "degraded",
            f"{engine.id}: {listed} is configured but not in force yet",
            "the engine keeps the settings that it was started with",
            f"run systemctl restart {engine.unit} to bring it into force",
        )
    if engine.needs_reload:
        return Check(
            name,
            "degraded",
            f"{engine.id}: the files of {engine.unit} have changed since systemd read them",
            "their new content is unknown, and a restart alone does not put it in force",
            f"run systemctl daemon-reload and systemctl restart {engine.unit} to bring them into force",
        )
    if engine.hidden and blind:
        return Check(
            name,
            "degraded",
            f"{engine.id}: {', '.join(engine.hidden[:NAMED])} could not be read",
            "the settings there are unknown and not shown",
            "see the check of the reader, or make environment files readable for the user gpusupervisor",
        )
    return Check(name, "ok", f"{engine.id}: its settings are in force") if engine.settings else None
