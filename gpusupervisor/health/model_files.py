"""Checks of models' files: where they are, and whether what is in RAM of them can be measured."""

from collections.abc import Iterable, Mapping

from gpusupervisor.models.residency import Residency
from gpusupervisor.state import Check, EngineStatus

_UNKNOWN_FILES = "the size of those models, whether they load from RAM, and whether to warm them is unknown"


def check_residency(residencies: Mapping[str, Residency]) -> Check:
    """How much of models' files is in RAM can be measured, and how that is done."""
    looked_at = {tenant: each for tenant, each in residencies.items() if each.models}
    unseen = [tenant for tenant, each in residencies.items() if not each.method and each.problems]
    if not looked_at and not unseen:
        return Check("residency", "skipped", "no model files were found in the directories set under [models]")
    if not looked_at:
        why = residencies[unseen[0]].problems[0]
        return Check("residency", "skipped", f"it is unknown how much of the models' files is in RAM: {why}")
    dark = [
        model for each in looked_at.values() for model in each.models.values() if model.size and model.cached is None
    ]
    methods = sorted({each.method for each in looked_at.values()})
    if dark and len(dark) == sum(len(each.models) for each in looked_at.values()):
        return Check(
            "residency",
            "degraded",
            f"how much of the models' files is in RAM cannot be measured ({' and '.join(methods)}): {dark[0].problem}",
            "it is unknown whether a model loads from RAM or from disk, and which models are worth warming",
            "run the reader as its unit does, with CAP_FOWNER; see journalctl -u gpusupervisor-reader",
        )
    return Check("residency", "ok", f"how much of the models' files is in RAM is measured by {' and '.join(methods)}")


def check_model_directories(
    residencies: Mapping[str, Residency], engines: Mapping[str, EngineStatus]
) -> Iterable[Check]:
    """Check the directories that `[models]` names, of each engine that has models.

    Unreadable ones are degraded; where no model is found in any, that is a hint only.
    """
    for tenant, residency in residencies.items():
        name, engine = f"model-directories-{tenant}", engines.get(tenant)
        if residency.problems and residency.method:
            yield Check(
                name,
                "degraded",
                f"{tenant}: {residency.problems[0]}",
                _UNKNOWN_FILES,
                "see journalctl -u gpusupervisor-reader, or set directories under [models] in its tenant file",
            )
        elif residency.models:
            yield Check(name, "ok", f"the model directories of {tenant} can be read")
        elif residency.method and engine is not None and engine.models:
            # Warming is optional: a directory that was never configured makes nothing degraded.
            yield Check(
                name,
                "skipped",
                f"{tenant} has models, but none of their files is below the directories set under [models]",
                _UNKNOWN_FILES,
                "to use warming, set directories under [models] in its tenant file (gpusupervisorctl setup proposes "
                "them where it finds them)",
            )
