"""A model that its engine loads by itself is measured, when nothing else can have been it."""

from dataclasses import replace

from gpusupervisor.models.growth import REST, ROOMY, GrowthWatch
from gpusupervisor.models.model import Model, ModelState
from tests.arbitration.builders import GIB

A, B = Model("a", "not-loaded"), Model("b", "not-loaded")


class Scene:
    """An engine with two models, looked at every second."""

    def __init__(self) -> None:
        self.watch = GrowthWatch()
        self.now = 0
        self.free = ROOMY
        self.learned: list[tuple[str, float]] = []

    def look(self, *models: Model, held: float | None, seconds: int = 1) -> None:
        for _ in range(seconds):
            self.now += 1_000_000
            size = None if held is None else round(held * GIB)
            found = self.watch.observe("e", models, size, self.free, self.now)
            if found is not None:
                self.learned.append((found.model.name, found.size / GIB))

    def rest(self, *models: Model, held: float | None) -> None:
        self.look(*models, held=held, seconds=REST // 1_000_000 + 1)


def placed(model: Model, size: float, **more: object) -> Model:
    """Loaded by an engine that says how much it placed."""
    return replace(model, state="loaded", held=round(size * GIB), **more)  # type: ignore[arg-type]


def state(model: Model, now: ModelState) -> Model:
    return replace(model, state=now)


def test_the_growth_between_two_moments_of_rest_is_what_the_model_took() -> None:
    scene = Scene()
    scene.rest(A, B, held=0)
    scene.look(A, B, held=3)
    scene.look(placed(A, 12), B, held=9)
    scene.rest(placed(A, 12), B, held=12.5)
    scene.rest(placed(A, 12), B, held=12.5)
    assert scene.learned == [("a", 12.5)]
    scene.rest(placed(A, 12), placed(B, 3), held=16)
    assert scene.learned == [("a", 12.5), ("b", 3.5)]


def test_one_that_comes_while_another_goes_teaches_nothing() -> None:
    scene = Scene()
    scene.rest(placed(A, 12), B, held=12.5)
    scene.look(A, B, held=0)
    scene.rest(A, placed(B, 3), held=3.5)
    assert scene.learned == []


def test_one_that_was_loaded_anew_meanwhile_teaches_nothing() -> None:
    scene = Scene()
    scene.rest(placed(A, 8), B, held=8)
    scene.look(A, B, held=0)
    scene.rest(placed(A, 8), placed(B, 3), held=15)
    assert scene.learned == []


def test_two_at_once_teach_nothing() -> None:
    scene = Scene()
    scene.rest(A, B, held=0)
    scene.rest(placed(A, 8), placed(B, 3), held=11)
    assert scene.learned == []


def test_a_spilled_one_and_one_that_placed_more_than_was_measured_teach_nothing() -> None:
    for model in (placed(A, 8, spilled=True), placed(A, 10)):
        scene = Scene()
        scene.rest(A, held=0)
        scene.rest(model, held=8)
        assert scene.learned == []


def test_where_the_engine_does_not_say_how_much_it_placed_it_must_have_named_it_early_and_left_room() -> None:
    for early, free, learned in (
        (True, ROOMY, [("a", 8)]),
        (False, ROOMY, []),
        (True, ROOMY - 1, []),
    ):
        scene = Scene()
        scene.free = free
        scene.rest(A, held=0)
        if early:
            scene.rest(state(A, "loading"), held=2)
        scene.rest(state(A, "loaded"), held=8)
        assert scene.learned == learned


def test_one_that_only_wakes_teaches_nothing() -> None:
    scene = Scene()
    scene.rest(state(A, "asleep"), held=1)
    scene.look(state(A, "loading"), held=4)
    scene.rest(state(A, "loaded"), held=8)
    assert scene.learned == []


def test_what_is_not_known_for_sure_begins_anew() -> None:
    for models, held in (((A,), None), ((state(A, "unknown"),), 0.0)):
        scene = Scene()
        scene.rest(A, held=0)
        scene.look(*models, held=held)
        scene.rest(placed(A, 8), held=8)
        assert scene.learned == []


def test_an_engine_that_left_is_forgotten() -> None:
    watch = GrowthWatch()
    found = [watch.observe("e", (A,), 0, 0, now) for now in (0, REST, 2 * REST)]
    watch.keep_only(set())
    loaded = (placed(A, 8),)
    found += [watch.observe("e", loaded, 8 * GIB, 0, now) for now in (3 * REST, 4 * REST, 5 * REST)]
    assert found == [None] * 6
