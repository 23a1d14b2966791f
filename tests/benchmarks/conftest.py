"""Collects the project's figures and prints them beside their goals when the run ends."""

from collections.abc import Callable, Iterator

import pytest

Figure = tuple[str, float, str, float]
Report = Callable[[str, float, str, float], None]
_figures = pytest.StashKey[list[Figure]]()


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Report:
    """`figure(name, value, unit, goal)`: a line of the table. A figure is never a test: goals do not fail a run."""
    found = request.config.stash.setdefault(_figures, [])

    def report(name: str, value: float, unit: str, goal: float) -> None:
        found.append((name, value, unit, goal))

    return report


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    yield
    figures = terminalreporter.config.stash.get(_figures, [])
    if not figures:
        return
    terminalreporter.section("figures")
    width = max(len(name) for name, *_ in figures)
    for name, value, unit, goal in figures:
        verdict = "" if value <= goal else "  OVER"
        terminalreporter.write_line(f"{name:<{width}}  {value:>9.2f} {unit:<6}  goal {goal:g} {unit}{verdict}")
