"""What happens to a GPU as entries of the helper's journal, and its log level."""

import pytest

from gpusupervisor.bus import names
from gpusupervisor.helper.control import Changed, GpuEvent
from gpusupervisor.helper.drift.keeper import DriftContested, DriftDetected, DriftEnded, DriftRepaired
from gpusupervisor.helper.drift.verdict import Verdict
from gpusupervisor.helper.entries import UNREADABLE, entry_of
from gpusupervisor.helper.fans.report import Alert
from gpusupervisor.helper.profile.trial import Ended
from gpusupervisor.helper.profile_state import TrialEnded
from gpusupervisor.helper.values import ItemResult
from gpusupervisor.journal.entry import Entry
from gpusupervisor.journal.messages import hardware
from tests.helper.conftest import CARD, Bench, eventually

GPU = "GPU-1"
DRIFTED = Verdict("power-limit", "drifted", "reset-to-default", "300 W", "450 W", "reset to the default")
CONTESTED = Verdict("power-limit", "contested", "changed-by-another", "300 W", "", "given up")
REPAIRED = ItemResult("power-limit", True, "300W", "300 W")
UNREAD = ItemResult("offset-graphics", True, "100", "")


@pytest.mark.parametrize(
    ("event", "entry"),
    [
        (Changed(), None),
        (
            DriftDetected(DRIFTED),
            hardware.DriftDetected(GPU, "power-limit", "reset-to-default", "300 W", "450 W", "reset to the default"),
        ),
        (DriftRepaired(REPAIRED), hardware.DriftRepaired(GPU, "power-limit", "300 W", "")),
        (DriftRepaired(UNREAD), hardware.DriftRepaired(GPU, "offset-graphics", "100", "")),
        (
            DriftContested(CONTESTED),
            hardware.DriftContested(GPU, "power-limit", "changed-by-another", "300 W", UNREADABLE, "given up"),
        ),
        (
            DriftEnded("power-limit", "replaced"),
            hardware.DriftEnded(GPU, "power-limit", "replaced", "a profile was applied or reset since"),
        ),
        (
            TrialEnded(Ended("timed-out", True, "not confirmed in time"), ()),
            hardware.TrialEnded(GPU, "timed-out", "not confirmed in time"),
        ),
        (Alert("recovered", "they are controlled again"), hardware.FansControlled(GPU, "they are controlled again")),
        (Alert("critical", "it is hot"), hardware.FanFailSafe(GPU, "critical", "it is hot")),
    ],
)
def test_every_event_has_its_entry(event: GpuEvent, entry: Entry | None) -> None:
    assert entry_of(GPU, event) == entry


async def test_a_trial_that_is_taken_back_is_in_the_log_once(bench: Bench) -> None:
    bench.start()
    tried = await bench.ask("TryProfile", "sst", CARD.uuid, '{"power-limit": "300W"}', "60000000")
    assert tried.status == 0, tried.errors
    assert (await bench.ask("Revert", "s", CARD.uuid)).status == 0
    await eventually(lambda: "ended, reverted: taken back as asked" in bench.log, "the entry")
    assert bench.log.count("reverted") == 1


async def test_the_helpers_log_level_can_be_set(bench: Bench) -> None:
    bench.start()
    at = (names.HELPER_NAME, names.LOG_CONTROL_PATH, "org.freedesktop.LogControl1")
    assert (await bench.bus.busctl("get-property", *at, "SyslogIdentifier")).json == "gpusupervisor-helper"
    done = await bench.bus.busctl("set-property", *at, "LogLevel", "s", "debug")
    assert done.status == 0, done.errors
    assert (await bench.bus.busctl("get-property", *at, "LogLevel")).json == "debug"
