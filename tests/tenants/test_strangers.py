"""What is said of processes that match no tenant."""

import pytest

from gpusupervisor.processes.identity import ProcessIdentity, ProcessKey
from gpusupervisor.tenants.catalog import SHIPPED, load_catalog
from gpusupervisor.tenants.recognizer import Recognizer
from gpusupervisor.tenants.strangers import kind_of
from gpusupervisor.tenants.take_census import take_census
from tests.tenants.people import GIB, gpu, sample, who

CATALOG = load_catalog([SHIPPED])


@pytest.mark.parametrize(
    ("command_line", "kind"),
    [
        ("/usr/bin/gamescope -W 1920", "desktop"),
        ("/usr/lib/firefox/firefox -contentproc -isForBrowser rdd", "desktop"),
        ("/opt/google/chrome/chrome --type=utility --utility-sub-type=video", "desktop"),
        ("/usr/bin/kwin_wayland", "desktop"),
        ("/home/u/.steam/steamapps/common/Factorio/bin/factorio", "game"),
        ("Z:\\\\games\\\\Elder.exe", "game"),
        ("python train.py", "program"),
        ("/opt/blender -b", "program"),
    ],
)
def test_only_programs_are_worth_a_description(command_line: str, kind: str) -> None:
    assert kind_of(who(7, command_line), CATALOG.definitions.values()) == kind


def test_a_thread_of_the_kernel_that_holds_nothing_is_no_holder() -> None:
    threads = {pid: ProcessIdentity(ProcessKey(pid, 1), 0 if pid == 2 else 2, 0, "kthreadd") for pid in (2, 40)}
    identities = {**threads, 7: who(7, "python train.py")}
    seen = sample(gpu(processes={2: 0, 40: None, 7: GIB}))
    [account] = take_census(seen, identities, CATALOG, Recognizer()).gpus.values()
    assert [holder.pid for holder in account.unmanaged] == [7]
