"""Bytes and durations as systemd writes them."""

import pytest

from gpusupervisor.clock import UNKNOWN as INFINITY
from gpusupervisor.quantities import format_bytes, format_duration, parse_bytes, parse_duration

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("13G", 13 << 30),
        ("600M", 600 << 20),
        ("1.5G", 3 << 29),
        ("512K", 512 << 10),
        ("4096", 4096),
        ("1G 512M", (1 << 30) + (512 << 20)),
        (" 2T ", 2 << 40),
        ("0", 0),
        ("infinity", INFINITY),
        *((spelled, 8 << 30) for spelled in ("8.0 GiB", "8GiB", "8GB", "8 gb", "8g", "8Gb", "8gib")),
        ("512 MiB", 512 << 20),
        ("1 GiB 512 MiB", 3 << 29),
        ("7 B", 7),
    ],
)
def test_bytes_are_read_as_systemd_reads_them(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    "text", ["", "13GG", "13 gigs", "G", "-1", "-8G", "1,5G", "1 2", "1e9", "99999999999E", "1G" * 40]
)
def test_bytes_that_are_none_are_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match=r"(is not|is negative; give) a number of bytes.*600M|too much"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10min", 600 * SECOND),
        ("1h 30min", 5400 * SECOND),
        ("1h30min", 5400 * SECOND),
        ("500ms", SECOND // 2),
        ("10s", 10 * SECOND),
        ("10", 10 * SECOND),
        ("2.5 seconds", 5 * SECOND // 2),
        ("1d", 86_400 * SECOND),
        ("1w", 7 * 86_400 * SECOND),
        ("250us", 250),
        ("infinity", INFINITY),
    ],
)
def test_durations_are_read_as_systemd_reads_them(text: str, expected: int) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "ten", "10 parsecs", "-5s", "1h 30", "for ever"])
def test_durations_that_are_none_are_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match=r"(is not|is negative; give) a number of seconds.*1h 30min"):
        parse_duration(text)


def test_bytes_are_shown_with_one_decimal() -> None:
    assert format_bytes(14_066_000_000) == "13.1 GiB"
    assert format_bytes(600 << 20) == "600.0 MiB"
    assert format_bytes(512) == "512 B"
    assert format_bytes((1 << 30) - 1) == "1.0 GiB", "never 1024.0 MiB"
    assert format_bytes(INFINITY) == "unknown"


def test_durations_are_shown_as_systemd_shows_them() -> None:
    assert format_duration(5400 * SECOND) == "1h 30min"
    assert format_duration(SECOND // 2) == "500ms"
    assert format_duration(0) == "0"
    assert format_duration(INFINITY) == "infinity"
    assert format_duration(2_134_567) == "2s 134ms", "to the millisecond"
    assert format_duration(2_134_567, accuracy=SECOND) == "2s"
