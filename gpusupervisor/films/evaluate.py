"""What a replay shows, compared with what its film says is right (pure)."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpusupervisor.arbitration.eligibility import refusal
from gpusupervisor.arbitration.events import PlanFinished, StepFinished
from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.films.expect import STATES
from gpusupervisor.films.replay import Ask, Moment, Record
from gpusupervisor.films.values import Expectation, Film
from gpusupervisor.quantities import format_bytes, format_duration

Kind = Literal["wrong eviction", "missed hand-off", "belief"]


@dataclass(frozen=True, slots=True)
class Finding:
    """An expectation that was not met."""

    kind: Kind
    expectation: Expectation
    seen: str
    """What was there instead."""


@dataclass(frozen=True, slots=True)
class Findings:
    """How well a film was judged."""

    met: int
    findings: tuple[Finding, ...]
    waits: tuple[int, ...]
    """Microseconds from "pressed-at" to the request, for each hand-off that names that moment."""
    thrash: int
    """Requests to tenants that had been asked twice within the ten minutes before."""


THRASH_SPAN = 600 * MICROSECONDS
OFTEN = 3
"""Requests to one tenant within `THRASH_SPAN` from which on the last one is thrash."""


def evaluate(film: Film, record: Record) -> Findings:
    """Hold the replay against every expectation."""
    met, findings, waits = 0, [], []
    for expectation in film.expectations:
        seen = _Judge(record, expectation).shortcoming()
        if seen is None:
            met += 1
        else:
            findings.append(Finding(_kind(expectation), expectation, seen))
        pressed = expectation.details.get("pressed-at")
        if isinstance(pressed, int):
            asked = [ask.at for ask in record.asks if ask.tenant == expectation.tenant and ask.at >= pressed]
            waits += [min(asked) - pressed] if asked else []
    return Findings(met, tuple(findings), tuple(waits), thrash(record.asks))


def thrash(asks: Sequence[Ask]) -> int:
    """How many of the requests came although their tenant had been asked again and again."""
    found = 0
    for index, ask in enumerate(asks):
        recent = [each for each in asks[: index + 1] if each.tenant == ask.tenant and ask.at - each.at < THRASH_SPAN]
        found += len(recent) >= OFTEN
    return found


def _kind(expectation: Expectation) -> Kind:
    if expectation.what == "nobody-asked" or (expectation.what == "asked" and expectation.wrong):
        return "wrong eviction"
    return "missed hand-off" if expectation.what == "asked" else "belief"


@dataclass(frozen=True, slots=True)
class _Judge:
    """One expectation."""

    record: Record
    expected: Expectation

    def shortcoming(self) -> str | None:
        """What was there instead; None when it was as expected."""
        what = self.expected.what
        if what in ("asked", "nobody-asked"):
            return self._asks()
        if what == "journal":
            return self._journal()
        if what == "outcome":
            return self._outcome()
        if what == "refused":
            return self._refused()
        return self._throughout(_CLAIMS.get(what, _state))

    def _throughout(self, claim: "Claim") -> str | None:
        seen: list[str] = []
        for moment in self._moments():
            is_so, shown = claim(moment, self.expected)
            good = is_so != self.expected.wrong
            if good and not self.expected.always:
                return None
            if not good:
                seen.append(f"at {_time(moment.at)}: {shown}")
                if self.expected.always:
                    return seen[0]
        return seen[-1] if seen else None if self.expected.always else "no look in that time"

    def _moments(self) -> Iterator[Moment]:
        """What was believed at the beginning of its time, and at every look within."""
        moments = self.record.moments
        first = max(0, bisect_right(moments, self.expected.since, key=lambda moment: moment.at) - 1)
        for moment in moments[first:]:
            if moment.at > self.expected.until:
                return
            yield moment

    def _asks(self) -> str | None:
        expected, details = self.expected, self.expected.details
        within = [ask for ask in self.record.asks if expected.since <= ask.at <= expected.until]
        if expected.what == "nobody-asked":
            wrong = [ask for ask in within if ask.tenant != details.get("but")]
            return f"asked were {_named(wrong)}" if wrong else None
        if "for" in details:
            within = [ask for ask in within if ask.beneficiary == details["for"]]
        his = [ask for ask in within if ask.tenant == expected.tenant]
        if expected.wrong:
            return f"asked were {_named(his)}" if his else None
        if not his:
            return f"asked were {_named(within)}" if within else f"nobody was asked; {self._why_not()}"
        if details.get("first") and within[0].tenant != expected.tenant:
            return f"asked were {_named(within)}"
        times = details.get("times")
        return f"asked {len(his)} times" if isinstance(times, int) and len(his) != times else None

    def _why_not(self) -> str:
        """What the last assessments of that time say of whoever works."""
        last = list(self._moments())[-1:]
        told = (
            f"{tenant} is {moment.activities[tenant].state} ({assessment.reason})"
            for moment in last
            for tenant, assessment in moment.assessments.items()
            if tenant in moment.activities and moment.activities[tenant].state not in ("absent", "idle")
        )
        return "; ".join(told) or "nobody worked"

    def _journal(self) -> str | None:
        expected, details = self.expected, self.expected.details
        found = [
            entry
            for entry in self.record.journal
            if expected.since <= entry.at <= expected.until
            and details.get("message", entry.kind) == entry.kind
            and str(details.get("naming", "")) in entry.text
        ]
        least, most = details.get("least", 0 if "most" in details else 1), details.get("most", len(found))
        assert isinstance(least, int)
        assert isinstance(most, int)
        if (least <= len(found) <= most) != expected.wrong:
            return None
        return f"{len(found)} such entries" + (f", the first: {found[0].text}" if found else "")

    def _refused(self) -> str | None:
        """Of a person's request."""
        naming, expected = str(self.expected.details.get("naming", "")), self.expected
        found = [
            f"at {_time(at)}: {deed}: {error}"
            for at, deed, error in self.record.refusals
            if expected.since <= at <= expected.until and expected.tenant in deed and naming in error
        ]
        if bool(found) != expected.wrong:
            return None
        return "; ".join(found) or "nothing was refused"

    def _outcome(self) -> str | None:
        """Of a step of the tenant's, or of a plan for nobody in particular."""
        expected, details = self.expected, self.expected.details
        seen = []
        for happening in self.record.happenings:
            if not expected.since <= happening.at <= expected.until:
                continue
            match happening.event:
                case StepFinished(_, step) if step.tenant == expected.tenant:
                    outcome, freed = str(step.outcome), step.freed
                case PlanFinished(result) if not expected.tenant:
                    outcome, freed = str(result.outcome), result.freed
                case _:
                    continue
            least = details.get("freed-least", 0)
            good = details.get("is", outcome) == outcome and isinstance(least, int) and freed >= least
            if good != expected.wrong:
                return None
            seen.append(f"at {_time(happening.at)}: {outcome}, {format_bytes(freed)} freed")
        return "; ".join(seen) or "nothing ended in that time"


Claim = Callable[[Moment, Expectation], tuple[bool, str]]


def _state(moment: Moment, expected: Expectation) -> tuple[bool, str]:
    activity = moment.activities.get(expected.tenant)
    if activity is None:
        return expected.what == "absent", "it is not known"
    return activity.state == expected.what, f"{activity.state}: {activity.reason}"


def _starved(moment: Moment, expected: Expectation) -> tuple[bool, str]:
    assessment = moment.assessments.get(expected.tenant)
    if assessment is None:
        return False, "it is not known"
    is_so = assessment.starved and _within(assessment.shortfall, expected.details)
    return is_so, f"{'starved' if assessment.starved else 'not starved'}: {assessment.reason}"


def _reclaimable(moment: Moment, expected: Expectation) -> tuple[bool, str]:
    tenant = moment.situation.tenants.get(expected.tenant)
    if tenant is None:
        return _within(0, expected.details), "it is not known"
    size = sum(tenant.above_floor(gpu) for gpu in tenant.holdings if refusal(tenant, gpu) is None)
    return _within(size, expected.details), format_bytes(size)


def _need(moment: Moment, expected: Expectation) -> tuple[bool, str]:
    tenant = moment.situation.tenants.get(expected.tenant)
    if tenant is None or tenant.need is None:
        return False, "its need is unknown"
    need = tenant.need
    shown = f"{format_bytes(need.figure)} ({need.source})"
    return _within(need.figure, expected.details) and str(expected.details.get("source", "")) in shown, shown


def _learned(moment: Moment, expected: Expectation) -> tuple[bool, str]:
    key = f"{expected.details.get('kind', 'need')} {expected.tenant}"
    value = moment.needs.get(key)
    return value is not None and _within(value, expected.details), "nothing" if value is None else format_bytes(value)


def _blocked(moment: Moment, expected: Expectation) -> tuple[bool, str]:
    """Whether what is said of anybody that lacks memory names the tenant as in the way."""
    told = [assessment.reason for assessment in moment.assessments.values() if assessment.starved]
    texts = [expected.tenant, *(str(expected.details.get(key, "")) for key in ("reason", "naming"))]
    return any(all(text in each for text in texts) for each in told), "; ".join(told) or "nobody is starved"


def _unhealthy(moment: Moment, expected: Expectation) -> tuple[bool, str]:
    naming, name = str(expected.details.get("naming", expected.tenant)), expected.details.get("check")
    bad = [check for check in moment.checks if check.state in ("degraded", "failed")]
    found = [check for check in bad if naming in f"{check.summary} {check.impact} {check.remedy}"]
    is_so = any(name in (None, check.id) for check in found)
    return is_so, "; ".join(f"{check.id}: {check.summary}" for check in bad) or "all is healthy"


def _reason(moment: Moment, expected: Expectation) -> tuple[bool, str]:
    """Whether what is said of the tenant has a text in it."""
    activity, assessment = moment.activities.get(expected.tenant), moment.assessments.get(expected.tenant)
    told = f"{activity.reason if activity else ''}; {assessment.reason if assessment else ''}"
    return str(expected.details.get("naming", "")) in told, told


_CLAIMS: Mapping[str, Claim] = {
    **dict.fromkeys(STATES, _state),
    "starved": _starved,
    "reclaimable": _reclaimable,
    "need": _need,
    "learned": _learned,
    "blocked": _blocked,
    "unhealthy": _unhealthy,
    "reason": _reason,
}


def _within(value: int, details: Mapping[str, object]) -> bool:
    least, most = details.get("least"), details.get("most")
    return (not isinstance(least, int) or value >= least) and (not isinstance(most, int) or value <= most)


def _named(asks: Sequence[Ask]) -> str:
    return ", ".join(f"{ask.tenant} at {_time(ask.at)} for {ask.beneficiary or ask.cause}" for ask in asks)


def _time(at: int) -> str:
    return format_duration(at, 10_000)
