"""What is said of engines whose settings wait, are hidden, or are in force."""

from dataclasses import replace

from gpusupervisor.engines.setting import Setting
from gpusupervisor.health.engine_checks import check_engines
from gpusupervisor.processes.privileged import Sight
from gpusupervisor.state import Check, EngineStatus
from tests.health.test_checks import says_everything

MISSING = Sight("missing")
KEEP = Setting("OLLAMA_KEEP_ALIVE", "5m", "environment", "an idle model stays loaded for 5min")
WAITING = replace(KEEP, pending="-1")


def of_engine(sight: Sight = MISSING, **more: object) -> tuple[Check, ...]:
    status = EngineStatus("ollama", "ollama", "Ollama", "http://127.0.0.1:11434", True, "0.33.0", "")
    return check_engines({"ollama": replace(status, unit="ollama.service", **more)}, sight)  # type: ignore[arg-type]


def test_an_engine_whose_settings_are_in_force_is_ok() -> None:
    (check,) = of_engine(settings=(KEEP,))
    assert (check.id, check.state) == ("engine-ollama", "ok")


def test_of_an_engine_that_is_not_here_nothing_is_said() -> None:
    assert of_engine() == ()


def test_what_waits_for_a_restart_is_named_with_the_command_that_brings_it() -> None:
    (check,) = of_engine(settings=(WAITING,), hidden=("/etc/a.env",))
    assert check.state == "degraded"
    assert "OLLAMA_KEEP_ALIVE is configured but not in force" in check.summary
    assert check.remedy == "run systemctl restart ollama.service to bring it into force"
    assert says_everything(check)


def test_many_waiting_settings_are_not_all_named() -> None:
    (check,) = of_engine(settings=tuple(replace(WAITING, name=f"S{number}") for number in range(9)))
    assert "S3 and others is" in check.summary
    assert "S4" not in check.summary


def test_files_that_systemd_has_not_read_yet_are_told() -> None:
    (check,) = of_engine(settings=(KEEP,), needs_reload=True)
    assert "ollama.service have changed" in check.summary
    assert "daemon-reload" in check.remedy
    assert says_everything(check)


def test_what_could_not_be_read_is_named() -> None:
    (check,) = of_engine(hidden=("the environment of its process", "/etc/a.env"))
    assert "the environment of its process, /etc/a.env could not be read" in check.summary
    assert says_everything(check)
    assert of_engine(Sight("ok"), hidden=("the environment of its process",)) == (), "only not looked up yet"
