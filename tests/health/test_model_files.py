"""The directories of models' files: there, empty of what the engine has, or not to be read."""

from gpusupervisor.health.model_files import check_model_directories
from gpusupervisor.models.model import Model
from gpusupervisor.models.residency import ModelResidency, Residency, residency_of
from gpusupervisor.state import Check, EngineStatus
from tests.arbitration.builders import GIB, NOW
from tests.health.builders import complains, engine

FILES = ModelResidency("qwen3:8b", 5 * GIB, 0)
LISTED = engine(models=(Model("qwen3:8b"),))


def of(residency: Residency, *engines: EngineStatus) -> tuple[Check, ...]:
    return tuple(check_model_directories({"ollama": residency}, {each.id: each for each in engines}))


def test_directories_with_models_are_well() -> None:
    (check,) = of(residency_of((FILES,), "cachestat", (), NOW), LISTED)
    assert (check.id, check.state) == ("model-directories-ollama", "ok")


def test_a_directory_that_cannot_be_looked_at_is_told() -> None:
    (check,) = of(residency_of((FILES,), "cachestat", ("/srv/models cannot be looked at (no permission)",), NOW))
    assert complains(check)
    assert check.summary == "ollama: /srv/models cannot be looked at (no permission)"


def test_directories_that_were_never_set_are_a_hint_and_nothing_degraded() -> None:
    (check,) = of(residency_of((), "cachestat", (), NOW), LISTED)
    assert check.state == "skipped"
    assert "directories under [models]" in check.remedy


def test_of_an_engine_without_models_or_a_reader_that_does_not_answer_nothing_is_said() -> None:
    assert of(residency_of((), "cachestat", (), NOW), engine()) == ()
    assert of(residency_of((), "", ("the reader is not there",), NOW), LISTED) == ()
