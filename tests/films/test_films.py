"""Every film is judged as it says is right, and so are generated machines."""

from pathlib import Path

import pytest

from gpusupervisor.films.score import films_in, judge_film
from tests.films.machines import tournament

HERE = Path(__file__).parent
FILMS = list(films_in([HERE]))


@pytest.mark.parametrize("path", FILMS, ids=[str(path.relative_to(HERE)) for path in FILMS])
def test_a_film_is_judged_as_it_says_is_right(path: Path) -> None:
    result = judge_film(path)
    assert result.found is not None, result.problem
    assert not result.found.findings, "\n".join(
        f"line {finding.expectation.line}: {finding.kind}: {finding.expectation.text}: {finding.seen}"
        for finding in result.found.findings
    )


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_generated_machine_is_judged_by_its_truth(seed: int) -> None:
    verdict = tournament.judge(seed, minutes=60)
    assert not verdict.wrong
    assert not verdict.missed


def test_the_same_seed_is_the_same_machine() -> None:
    one, other = tournament.play(3, 10), tournament.play(3, 10)
    assert one[0].referee == other[0].referee
    assert one[1].asks == other[1].asks


def test_the_score_of_generated_machines_is_told() -> None:
    lines, _ = tournament.report(20, 3, 1)
    assert any(line.startswith("wrong evictions") for line in lines)
    assert any("20 machine-minutes" in line for line in lines)
