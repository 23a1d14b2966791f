"""What tenants held at the least, as far as telemetry knows."""

from dataclasses import dataclass, field

from gpusupervisor.errors import NotSupported
from gpusupervisor.keepers.least_held import LATELY, LeastHeld
from tests.arbitration.builders import CARD, GIB, situation, tenant
from tests.bus.builders import EPOCH, FakeClock


@dataclass
class Store:
    """Answers as telemetry does."""

    known: dict[str, int | None] = field(default_factory=dict)
    asked: list[tuple[str, str, int]] = field(default_factory=list)

    async def least_held(self, name: str, gpu: str, since: int) -> int | None:
        self.asked.append((name, gpu, since))
        if name not in self.known:
            raise NotSupported("nothing is stored")
        return self.known[name]


async def test_who_holds_something_is_asked_about_and_what_is_not_known_stays_unknown() -> None:
    store = Store({"desktop": GIB // 2, "comfyui": None})
    least = LeastHeld(store, FakeClock())  # type: ignore[arg-type]
    await least.refresh(situation(tenant("desktop", 1), tenant("comfyui", 2), tenant("third", 3), tenant("away")))
    assert [name for name, _, _ in store.asked] == ["desktop", "comfyui", "third"]
    assert abs(store.asked[0][2] - (EPOCH + 5_000_000_000 - LATELY)) < 100
    assert [least.of(name, CARD) for name in ("desktop", "comfyui", "third")] == [GIB // 2, None, None]


async def test_without_a_situation_nothing_is_asked() -> None:
    store = Store()
    least = LeastHeld(store, FakeClock())  # type: ignore[arg-type]
    await least.refresh(None)
    assert (store.asked, least.of("desktop", CARD)) == ([], None)
