"""Values are read as Go, Ollama and Python programs read them."""

import pytest

from gpusupervisor.engines.values import (
    go_duration,
    integer,
    is_on,
    is_unsigned,
    keep_alive,
    number,
    ollama_on,
    spoken,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5m", 300.0), ("1h30m", 5400.0), ("1.5h", 5400.0), ("-1m", -60.0), ("0", 0.0), ("300ms", 0.3), ("+2s", 2.0),
        (".5s", 0.5), ("1us", 1e-6), ("5", None), ("", None), ("m", None), ("5 m", None), ("1d", None), ("5m3", None),
    ],
)  # fmt: skip
def test_go_durations(text: str, seconds: float | None) -> None:
    assert go_duration(text) == (seconds if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("-1", -1.0), ("0", 0.0), ("300", 300.0), ('"10m"', 600.0), (" 24h ", 86400.0), ("soon", None), ("1.5", None)],
)
def test_keep_alive_is_a_duration_or_whole_seconds(text: str, seconds: float | None) -> None:
    assert keep_alive(text) == seconds


def test_ollama_takes_what_it_cannot_read_for_on() -> None:
    assert [ollama_on(text) for text in ("1", "yes", "0", "false", "off", "'0'")] == [
        True,
        True,
        False,
        False,
        True,
        False,
    ]


def test_python_switches() -> None:
    assert [is_on(text) for text in ("", "1", "True", "on", "0", "false", "off", "no")] == [True] * 4 + [False] * 4


def test_numbers() -> None:
    assert [integer(text) for text in ("5", "-1", " 7 ", "5.0", "x", "9" * 19)] == [5, -1, 7, None, None, None]
    assert [number(text) for text in ("0.9", "1e3", ".5", "nan", "inf", "0.9GB")] == [
        0.9,
        1000.0,
        0.5,
        None,
        None,
        None,
    ]
    assert [is_unsigned(text) for text in ("1", '"2"', "-1", "x")] == [True, True, False, False]


def test_durations_are_spoken_in_systemds_notation() -> None:
    assert [spoken(300), spoken(5400), spoken(1e30)] == ["5min", "1h 30min", spoken(2**62 / 1e6)]
