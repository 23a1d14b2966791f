"""What was learned of tenants and stays true over a restart: floors, needs, load speeds, their models' needs and use.

Values in, values out: who stores them is told of each change.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from gpusupervisor.quantities import format_bytes

DAY = 86_400_000_000
"""Microseconds."""
WEEK = 7
FactKind = Literal["floor", "need", "need-usual", "model-need", "model-use", "load-cold", "load-warm"]
"""floor, need, need-usual, model-need: bytes. need: the most that was held in sessions that lacked nothing; need-usual:
the least that was held at the height of each of several sessions with plenty of room. model-use: how often it was seen
to be loaded; learned when it was loaded last. load-cold, load-warm: bytes per second, from disk and from RAM."""
KINDS: tuple[FactKind, ...] = get_args(FactKind)

FactKey = tuple[FactKind, str, str, str]
"""Kind, tenant, GPU, model."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement that a fact rests on."""

    at: int
    """Realtime microseconds."""
    value: int


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing learned of a tenant."""

    kind: FactKind
    tenant: str
    gpu: str
    """UUID; empty for what is the same on every GPU."""
    value: int
    learned_at: int
    """Realtime microseconds."""
    source: str
    """What it was learned from, in one clause."""
    application: str = ""
    """What ran when it was learned, where that matters."""
    evidence: tuple[Measured, ...] = ()
    model: str = ""
    """Of which of its models, where it is of one, as the engine's API names it."""

    @property
    def key(self) -> FactKey:
        """What there is one fact of."""
        return self.kind, self.tenant, self.gpu, self.model


def by_day(measured: Iterable[Measured]) -> tuple[Measured, ...]:
    """The last measurement of each of the days of the latest week."""
    last = {each.at // DAY: each for each in sorted(measured, key=lambda each: each.at)}
    return tuple(each for day, each in last.items() if day > max(last) - WEEK)


def _unkept(_fact: Fact) -> None:
    """Nobody stores it: it is known for as long as the service runs."""


class LearnedFacts:
    """The facts that decisions look at, by tenant."""

    def __init__(
        self,
        realtime: Callable[[int], int] = lambda instant: instant,
        keep: Callable[[Fact], None] = _unkept,
    ) -> None:
        """realtime: the wall-clock time of an instant. keep: told of every fact that is new or has changed."""
        self._realtime = realtime
        self._keep = keep
        self._facts: dict[str, dict[FactKey, Fact]] = {}
        self._revisions: Counter[FactKind] = Counter()

    def revision(self, kind: FactKind) -> int:
        """Another number whenever a fact of a kind has been learned, recalled or forgotten since."""
        return self._revisions[kind]

    def recall(self, facts: Iterable[Fact]) -> None:
        """Take over what was stored; what was learned meanwhile is newer and stands.

        But a need only grows while a tenant works, so that the beginning of its work says nothing against a larger one,
        and uses are counted on.
        """
        for fact in facts:
            self._revisions[fact.kind] += 1
            known = self._facts.setdefault(fact.tenant, {}).setdefault(fact.key, fact)
            if fact.kind == "need" and known.value < fact.value:
                self.learn(fact)
            elif fact.kind == "model-use" and known is not fact:
                self.learn(
                    replace(known, value=known.value + fact.value, evidence=by_day((*fact.evidence, *known.evidence)))
                )

    def learn(self, fact: Fact) -> None:
        """Take over a fact in place of what was known."""
        self._facts.setdefault(fact.tenant, {})[fact.key] = fact
        self._revisions[fact.kind] += 1
        self._keep(fact)

    def learn_floor(self, tenant: str, gpu: str, left: int, source: str, now: int) -> None:
        """A release has left so many bytes. now: an instant of the domain clock."""
        known = self.get("floor", tenant, gpu)
        if known is None or known.value != left:
            self.learn(Fact("floor", tenant, gpu, left, self._realtime(now), source))

    def get(self, kind: FactKind, tenant: str, gpu: str = "", model: str = "") -> Fact | None:
        """One fact; None when it is not known."""
        return self._facts.get(tenant, {}).get((kind, tenant, gpu, model))

    def floors(self, tenant: str) -> dict[str, int]:
        """GPU UUID to the bytes a tenant keeps after a release."""
        return {fact.gpu: fact.value for fact in self._facts.get(tenant, {}).values() if fact.kind == "floor"}

    def need(self, tenant: str) -> int | None:
        """Bytes that a tenant held at most while it worked; None when it was not seen working."""
        fact = self.get("need", tenant)
        return fact.value if fact else None

    def all(self) -> tuple[Fact, ...]:
        """Every fact, in a steady order."""
        return tuple(fact for _, facts in sorted(self._facts.items()) for _, fact in sorted(facts.items()))

    def of_kind(self, kind: FactKind, tenant: str) -> tuple[Fact, ...]:
        """Every fact of one kind about a tenant, the one learned first before the others."""
        facts = (fact for fact in self._facts.get(tenant, {}).values() if fact.kind == kind)
        return tuple(sorted(facts, key=lambda fact: fact.learned_at))

    def forget(self, tenant: str, kind: FactKind | None) -> tuple[Fact, ...]:
        """Forget one kind of facts of a tenant, or all of them; returns what was forgotten."""
        gone = tuple(fact for fact in self._facts.get(tenant, {}).values() if kind in (None, fact.kind))
        for fact in gone:
            self.drop(fact)
        return gone

    def drop(self, fact: Fact) -> None:
        """Forget one fact."""
        del self._facts[fact.tenant][fact.key]
        self._revisions[fact.kind] += 1


def floor_source(freed: int, plan: str) -> str:
    """From what a floor was learned."""
    of = f" of {plan}" if plan else ""
    return f"what it kept after a release{of} that freed {format_bytes(freed)}"
