"""Pure functions from a job to the properties of its object, and from what jobs make to D-Bus values."""

from dbus_fast import Variant

from gpusupervisor.autotune.curve import Measured, Tuning
from gpusupervisor.bus.model_views import load_details
from gpusupervisor.bus.published import Values
from gpusupervisor.bus.views import Details, Realtime
from gpusupervisor.bus.wire import details, text
from gpusupervisor.jobs import Job
from gpusupervisor.models.load import LoadResult
from gpusupervisor.models.warm_plan import WarmedUp

NOBODY = 2**32 - 1
"""No uid: gpusupervisor began by itself."""


def job_view(job: Job, realtime: Realtime) -> Values:
    """Properties of one job."""
    return {
        "Id": job.id,
        "Kind": job.kind,
        "Target": job.target,
        "StartedBy": NOBODY if job.owner is None else job.owner,
        "StartedAt": realtime(job.started_at),
        "State": job.state,
        "Progress": job.progress,
        "Detail": job.detail,
        "Result": result_details(job.result),
        "EndedAt": realtime(job.ended_at),
    }


def finished_body(job: Job) -> list[object]:
    """The body of the signal that tells of its end."""
    return [job.state, text(job.detail), result_details(job.result)]


def result_details(result: object) -> Details:
    """What a job makes, as `a{sv}`: one case for each type that a work returns or reports."""
    match result:
        case None:
            return {}
        case Tuning():
            return _tuning(result)
        case LoadResult():
            return load_details(result)
        case WarmedUp():
            return details(
                engine=("s", result.engine), model=("s", result.model), size=("t", result.size), took=("t", result.took)
            )
        case _:
            raise TypeError(f"nobody has said how to show {type(result).__name__} on D-Bus")


def _tuning(tuning: Tuning) -> Details:
    shown = details(
        unit=("s", tuning.unit),
        tolerance=("u", tuning.tolerance),
        curve=("aa{sv}", [_measured(each) for each in tuning.curve]),
    )
    if tuning.proposal is None:
        return shown
    proposal = Variant("a{sv}", _measured(tuning.proposal))
    return {**shown, "proposal": proposal, "profile": Variant("s", tuning.profile)}


def _measured(each: Measured) -> Details:
    shown = details(
        power_limit=("t", each.point.power_limit),
        units=("t", each.work.units),
        duration=("t", each.work.duration),
        throughput=("d", each.throughput),
        power=("t", each.power),
        energy_per_unit=("d", each.energy_per_unit),
        hottest=("x", each.hottest),
        reasons=("as", tuple(sorted(each.reasons))),
    )
    return shown if each.point.offset is None else shown | details(offset_graphics=("x", each.point.offset))
