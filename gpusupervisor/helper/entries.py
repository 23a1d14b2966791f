"""What happens to a GPU, as an entry of the journal. Pure."""

from gpusupervisor.helper.control import Changed, GpuEvent
from gpusupervisor.helper.drift.keeper import OVER, DriftContested, DriftDetected, DriftEnded, DriftRepaired
from gpusupervisor.helper.fans.report import Alert
from gpusupervisor.helper.profile_state import TrialEnded
from gpusupervisor.journal.entry import Entry
from gpusupervisor.journal.messages import hardware

UNREADABLE = "nothing that can be read"


def entry_of(gpu: str, event: GpuEvent) -> Entry | None:
    """gpu: UUID. None for what is no news."""
    match event:
        case Changed():
            return None
        case DriftDetected(verdict) | DriftContested(verdict):
            kind = hardware.DriftDetected if isinstance(event, DriftDetected) else hardware.DriftContested
            found = verdict.found or UNREADABLE
            return kind(gpu, verdict.item, verdict.cause, verdict.accepted, found, verdict.detail)
        case DriftRepaired(result):
            return hardware.DriftRepaired(gpu, result.item, result.accepted or result.asked, result.detail)
        case DriftEnded(item, cause):
            return hardware.DriftEnded(gpu, item, cause, OVER[cause])
        case TrialEnded(ended):
            return hardware.TrialEnded(gpu, ended.end, ended.reason)
        case Alert("recovered", text):
            return hardware.FansControlled(gpu, text)
        case Alert(cause, text):
            return hardware.FanFailSafe(gpu, cause, text)
