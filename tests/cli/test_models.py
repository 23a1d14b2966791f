"""The commands about models, as processes."""

from gpusupervisor.bus.service import BusService
from tests.bus.builders import make_state
from tests.bus.fakes import FakeController
from tests.bus.test_models import with_models
from tests.cli.conftest import Run


async def test_models_are_listed_with_what_fits(service: BusService, ctl: Run) -> None:
    service.publish(with_models(make_state()))
    shown = await ctl("models")
    assert shown.status == 0
    assert "ollama: 2 models (part is unknown)" in shown.output
    assert "llama3:8b  loaded, spilled  needs 6.0 GiB (reported)  now: there is room" in shown.output
    assert "b  unknown  needs ?  unknown: nobody knows" in shown.output
    assert "1 model fits but" in shown.output
    assert (await ctl("models", "nobody")).status == 1


async def test_an_unload_tells_what_came_back(service: BusService, ctl: Run, controller: FakeController) -> None:
    service.publish(with_models(make_state()))
    done = await ctl("unload", "ollama", "b")
    assert (done.status, done.output.strip()) == (0, "4.0 GiB came back (300ms)")
    assert controller.calls == [("unload_model", "ollama", "b")]
