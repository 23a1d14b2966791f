"""The store as a thread: nothing is lost, nothing waits, and trouble is told and got over."""

import random
import signal
import sqlite3
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from gpusupervisor.arbitration.learned import Fact
from gpusupervisor.telemetry import schema, store
from gpusupervisor.telemetry.database import Database, salvage
from gpusupervisor.telemetry.records import Point, Series
from tests.telemetry.builders import EPOCH, GIB, SECOND, Station, event, eventually, fact, opened, points, rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "telemetry.sqlite"


def test_closing_writes_everything_that_waits(path: Path) -> None:
    with opened(path, batch_interval=3600) as station:
        station.store.put_points(points(700))
        for number in range(40):
            station.store.put_event(event(number))
        station.store.put_fact(fact().key, fact())
    assert (rows(path), rows(path, "events"), rows(path, "facts")) == (700, 40, 1)


def test_closing_at_once_writes_everything_too(path: Path) -> None:
    station = Station(path)
    station.store.put_points(points(10))
    station.store.put_event(event())
    station.store.start()
    assert station.store.close()
    assert (rows(path), rows(path, "events")) == (10, 1)


def test_a_store_that_was_never_started_can_be_closed(path: Path) -> None:
    assert Station(path).store.close()
    assert not path.exists()


def test_samples_are_gathered_and_events_are_not(path: Path) -> None:
    with opened(path, batch_interval=3600) as station:
        station.store.put_points(points(5))
        assert rows(path) == 0
        station.store.put_event(event())
        eventually(lambda: rows(path, "events") == 1, "the event on the disk")
        assert rows(path) == 5, "what waits goes with it"


def test_many_samples_do_not_wait_for_the_time(path: Path) -> None:
    with opened(path, batch_interval=3600) as station:
        station.store.put_points(points(store.BATCH_ROWS))
        eventually(lambda: rows(path) == store.BATCH_ROWS, "the samples on the disk")


def test_a_learned_fact_is_on_the_disk_when_it_says_so_and_comes_back(path: Path) -> None:
    learned = [fact(), fact("ollama"), fact(kind="need", value=13 * GIB), fact(kind="load-warm", value=5 * GIB)]
    with opened(path) as station:
        for each in learned:
            station.store.put_fact(each.key, each).result(10)
        assert {(f.kind, f.tenant) for f in salvage(path).facts} == {(f.kind, f.tenant) for f in learned}
        station.store.put_fact(learned[1].key, None).result(10)
    with opened(path) as station:
        assert station.facts == {learned[0], *learned[2:]}


def test_of_two_changes_of_one_fact_the_later_one_counts_and_both_are_done(path: Path) -> None:
    station = Station(path)
    first = station.store.put_fact(fact(value=1).key, fact(value=1))
    second = station.store.put_fact(fact(value=2).key, fact(value=2))
    station.store.start()
    first.result(10)
    second.result(10)
    assert station.store.close()
    assert [each.value for each in salvage(path).facts] == [2]


def test_figures_that_others_made_too_large_do_no_harm(path: Path) -> None:
    with opened(path) as station:
        station.store.put_points(
            [Point(Series("need", "", "app"), EPOCH, 10**30), Point(Series("used", "G"), -(10**30), 1)]
        )
        station.store.put_fact(fact().key, fact(value=10**30)).result(10)
    assert (rows(path), rows(path, "facts"), station.store.status.state) == (2, 1, "ok")
    assert not station.store.status.set_aside


def test_what_is_forgotten_while_nothing_can_be_written_stays_forgotten(path: Path) -> None:
    fill(path, 3)
    hidden = path.rename(path.with_suffix(".hidden"))
    path.mkdir()
    station = Station(path)
    station.store.start()
    eventually(lambda: station.store.status.state == "failing", "the trouble is told")
    forgotten = fact("tenant-1", GIB + 1)
    done = station.store.put_fact(forgotten.key, None)
    path.rmdir()
    hidden.rename(path)
    done.result(15)
    assert station.store.close()
    assert station.facts == {fact("tenant-0", GIB), fact("tenant-2", GIB + 2)} == set(salvage(path).facts)


def test_the_number_of_the_last_plan_comes_back(path: Path) -> None:
    with opened(path) as station:
        station.store.plans = 17
        station.store.put_event(event(17))
    with opened(path) as station:
        assert station.recalled[0].plans == 17
        station.store.put_event(event(18))
    with opened(path) as station:
        assert station.recalled[0].plans == 17, "it never goes back"


def test_the_oldest_samples_go_first_when_too_many_wait_and_they_are_counted(path: Path) -> None:
    station = Station(path)
    station.store.put_points(points(store.SAMPLES_KEPT))
    station.store.put_points(points(30, start=EPOCH + store.SAMPLES_KEPT * SECOND))
    for number in range(store.EVENTS_KEPT + 3):
        station.store.put_event(event(number))
    station.store.start()
    eventually(lambda: station.store.status.losing, "the loss is told")
    assert station.store.close()
    status = station.store.status
    assert (status.dropped_samples, status.dropped_events) == (30, 3)
    assert (rows(path), rows(path, "events")) == (store.SAMPLES_KEPT, store.EVENTS_KEPT)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT min(at) FROM samples").fetchone() == (EPOCH + 30 * SECOND,)
    connection.close()


def test_a_disk_that_keeps_it_waiting_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LATE", 0.05)
    with opened(path) as station:
        eventually(lambda: station.store.status.state == "ok", "it works")
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        station.store.put_event(event())
        eventually(lambda: station.store.status.late, "it is told that rows wait")
        blocker.execute("ROLLBACK")
        blocker.close()
        eventually(lambda: rows(path, "events") == 1, "the event on the disk after all")
        eventually(lambda: not station.store.status.late, "all is well")


def test_what_cannot_be_stored_at_the_end_is_told(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.mkdir(parents=True)
    station = Station(path)
    station.store.put_points(points(7))
    station.store.put_event(event())
    waits = station.store.put_fact(fact().key, fact())
    station.store.start()
    assert station.store.close()
    assert "7 samples, 1 events, 1 learned facts" in caplog.text
    assert waits.cancelled()


# Trouble


def test_a_file_that_cannot_even_be_looked_for_is_told_and_tried_again(tmp_path: Path) -> None:
    with opened(tmp_path / ("x" * 300) / "telemetry.sqlite") as station:
        eventually(lambda: station.store.status.state == "failing", "what is wrong")
        assert "File name too long" in station.store.status.detail


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_ended_by_a_defect_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    station = Station(path)
    monkeypatch.setattr(station.store, "_sleep", lambda: 1 / 0)
    station.store.start()
    eventually(lambda: station.store.status.state == "failing", "the end of the thread")
    assert "defect" in station.store.status.detail
    assert station.store.close()


def test_a_folder_that_cannot_be_made_is_told_and_tried_again(path: Path) -> None:
    path.parent.write_text("a file where the folder should be")
    station = Station(path)
    station.store.start()
    station.store.put_points(points(5))
    kept = station.store.put_fact(fact().key, fact())
    eventually(lambda: station.store.status.state == "failing", "the trouble is told")
    assert station.store.status.detail
    path.parent.unlink()
    kept.result(15)
    eventually(lambda: station.store.status.state == "ok", "it is well again")
    assert station.store.close()
    assert (rows(path), rows(path, "facts")) == (5, 1)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], capture_output=True).returncode:
        pytest.skip("needs to be allowed to mount")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_disk_that_cannot_be_written_is_told_and_its_facts_are_read(disk: Path) -> None:
    path = disk / "telemetry.sqlite"
    with opened(path) as station:
        station.store.put_fact(fact().key, fact())
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    with opened(path) as station:
        eventually(lambda: station.store.status.state == "failing", "the trouble is told")
        assert station.facts == {fact()}
        station.store.put_event(event())
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        eventually(lambda: station.store.status.state == "ok", "it is well again")
    assert (rows(path, "events"), rows(path, "facts"), station.store.status.set_aside) == (1, 1, "")


FULL_DISK = """
import resource, sys, time
from pathlib import Path
from tests.telemetry.builders import Station, event, eventually, fact, points
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
station = Station(Path(sys.argv[1]))
store = station.store
store.start()
stored = store.put_fact(fact("before").key, fact("before")).result(10)
for number in range(40):
    store.put_points(points(900, start=1_790_000_000_000_000 + number * 900_000_000))
    store.put_event(event(number))
    time.sleep(0.01)
eventually(lambda: store.status.state == "failing", "a full disk")
assert not store.put_fact(fact("after").key, fact("after")).done()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
eventually(lambda: store.status.state == "ok", "room again")
assert store.close()
assert store.status.set_aside == "", store.status
print(store.status.dropped_samples)
"""


def test_a_full_disk_loses_nothing_and_is_got_over(path: Path) -> None:
    command = [sys.executable, "-c", FULL_DISK, str(path), str(400_000)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) + rows(path) == 36_000
    assert (rows(path, "events"), rows(path, "facts")) == (40, 2)


def fill_up(ballast: Path) -> None:
    """Take all the room there is."""
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_small_filesystem_that_is_really_full_is_got_over(disk: Path) -> None:
    path, ballast = disk / "telemetry.sqlite", disk / "ballast"
    with opened(path) as station:
        station.store.put_fact(fact().key, fact()).result(10)
        fill_up(ballast)
        station.store.put_points(points(5000))
        station.store.put_event(event())
        eventually(lambda: station.store.status.state == "failing", "the full disk is told")
        ballast.unlink()
        eventually(lambda: station.store.status.state == "ok", "it is well again")
    assert (rows(path), rows(path, "events"), rows(path, "facts")) == (5000, 1, 1)
    assert station.store.status.set_aside == ""


def test_on_a_disk_that_is_full_from_the_start_what_was_learned_is_known(disk: Path) -> None:
    path, ballast = disk / "telemetry.sqlite", disk / "ballast"
    with opened(path) as station:
        station.store.put_fact(fact().key, fact()).result(10)
    fill_up(ballast)
    with opened(path) as station:
        eventually(lambda: station.store.status.state == "failing", "the full disk is told")
        assert station.facts == {fact()}
        ballast.unlink()
        eventually(lambda: station.store.status.state == "ok", "it is well again")
    assert rows(path, "facts") == 1


def fill(path: Path, tenants: int = 30) -> set[Fact]:
    """A store of some size, with facts; closed."""
    learned = {fact(f"tenant-{number}", GIB + number) for number in range(tenants)}
    with opened(path) as station:
        for number in range(6):
            station.store.put_points(points(3000, Series("holding", "GPU-1", f"tenant-{number}")))
        for number in range(300):
            station.store.put_event(event(number))
        for each in learned:
            station.store.put_fact(each.key, each)
    return learned


def pages_that_differ(left: bytes, right: bytes) -> int:
    """All but the few pages that were written before the damage was met are as they were."""
    assert len(left) >= len(right)
    return sum(left[at : at + 4096] != right[at : at + 4096] for at in range(0, len(right), 4096))


@pytest.mark.parametrize("seed", range(12))
def test_random_damage_at_random_places_is_survived(path: Path, seed: int) -> None:
    learned = fill(path)
    dice = random.Random(seed)
    damaged = bytearray(path.read_bytes())
    for _ in range(dice.choice((1, 3, 40))):
        at = 0 if seed == 0 else dice.randrange(len(damaged))
        length = dice.choice((1, 16, 5000))
        damaged[at : at + length] = dice.randbytes(min(length, len(damaged) - at))
    path.write_bytes(damaged)
    with opened(path) as station:
        station.store.put_event(event(9))
        station.store.put_fact(fact("fresh").key, fact("fresh")).result(15)
        eventually(lambda: station.store.status.state == "ok", "it works again")
    assert station.facts <= learned | {fact("fresh")}, "no fact is made up"
    aside = station.store.status.set_aside
    if aside:
        assert pages_that_differ(Path(aside).read_bytes(), bytes(damaged)) <= 4, "nothing of the old file is lost"
        connection = sqlite3.connect(path)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
    with opened(path) as again:
        assert fact("fresh") in again.facts
        assert again.facts <= learned | {fact("fresh")}


def test_facts_that_can_be_read_are_carried_over(path: Path) -> None:
    learned = fill(path)
    damaged = bytearray(path.read_bytes())
    connection = sqlite3.connect(path)
    [root] = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'samples'").fetchone()
    connection.close()
    damaged[(root - 1) * 4096 : root * 4096] = bytes(4096)
    path.write_bytes(damaged)
    with opened(path) as station:
        eventually(lambda: station.store.status.set_aside, "the damage is found without anybody asking")
        eventually(lambda: rows(path, "facts") == len(learned), "the facts in the new file")
    assert station.facts == learned


def test_damage_that_comes_while_it_runs_costs_no_fact(path: Path) -> None:
    learned = fill(path)
    with opened(path) as station:
        eventually(lambda: station.store.status.state == "ok", "it works")
        path.write_bytes(b"x" * path.stat().st_size)
        station.store.suspect()
        station.store.put_event(event(1))
        eventually(lambda: station.store.status.set_aside, "the damage is found")
        eventually(lambda: rows(path, "facts") == len(learned), "the facts in the new file")
        eventually(lambda: rows(path, "events") == 1, "the event in the new file")


def test_no_file_is_no_database(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("I am a shopping list, and longer than a header has to be, so that nobody takes me for one.\n" * 9)
    with opened(path) as station:
        eventually(lambda: station.store.status.set_aside, "it is put aside")
        station.store.put_event(event())
    assert "shopping list" in Path(station.store.status.set_aside).read_text()
    assert rows(path, "events") == 1


def test_a_file_of_a_later_version_is_kept_and_its_facts_are_carried_over(path: Path) -> None:
    fill(path, 3)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with opened(path) as station:
        eventually(lambda: station.store.status.set_aside, "it is put aside")
        eventually(lambda: path.exists() and rows(path, "facts") == 3, "a new file with the facts")
    kept = sqlite3.connect(station.store.status.set_aside)
    assert kept.execute("PRAGMA user_version").fetchone() == (99,)
    kept.close()


def test_an_older_file_becomes_one_of_today_step_by_step_or_not_at_all(path: Path) -> None:
    fill(path, 2)
    version = len(schema.MIGRATIONS)
    newer = (*schema.MIGRATIONS, "CREATE TABLE later (a INTEGER);", "CREATE TABLE broken (;")
    connection = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(sqlite3.OperationalError):
        schema.migrate(connection, newer)
    connection.execute("ROLLBACK")
    assert connection.execute("PRAGMA user_version").fetchone() == (version + 1,), "the step that worked stays"
    assert connection.execute("SELECT count(*) FROM facts").fetchone() == (2,)
    connection.close()


def test_facts_of_a_file_without_models_are_kept(path: Path) -> None:
    """A checksum that was written before the column was there is still right."""
    path.parent.mkdir()
    connection = sqlite3.connect(path, isolation_level=None)
    schema.migrate(connection, schema.MIGRATIONS[:1])
    kept = fact("ollama", 5 * GIB)
    evidence = "[]"
    content = (kept.kind, kept.tenant, kept.gpu, kept.value, EPOCH, kept.source, kept.application, evidence)
    row = (*content, zlib.crc32(repr(content).encode()))
    connection.execute("INSERT INTO facts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    connection.close()
    of_a_model = replace(fact("ollama", kind="model-need"), model="llama3:8b")
    with opened(path) as station:
        station.store.put_fact(of_a_model.key, of_a_model).result(10)
    with opened(path) as station:
        assert station.facts == {kept, of_a_model}


def test_a_file_that_is_damaged_again_at_once_is_not_replaced_for_ever(path: Path) -> None:
    fill(path)
    with opened(path) as station:
        for _ in range(2):
            eventually(lambda: rows(path, "facts") == 30, "it works")
            overwrite(path)
            station.store.suspect()
            eventually(lambda: station.store.status.set_aside, "the damage is found")
        eventually(lambda: station.store.status.state == "failing", "it gives up for now")
    assert len(list(path.parent.glob("*.damaged-*[0-9]"))) == 1


def overwrite(path: Path) -> None:
    """What is in the log goes into the file, and the file is nonsense."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    path.write_bytes(b"x" * path.stat().st_size)


# The end comes without a warning

WRITER = """
import sys, itertools
from pathlib import Path
from tests.telemetry.builders import Station, event, fact, points, GIB
station = Station(Path(sys.argv[1]))
station.store.start()
assert station.has_recalled.wait(30)
for number in itertools.count(int(sys.argv[2])):
    station.store.put_points(points(50, start=1_790_000_000_000_000 + number * 50_000_000))
    station.store.put_event(event(number))
    known = fact(f"tenant-{number % 7}", GIB + number)
    station.store.put_fact(known.key, known).result(30)
    print(number, flush=True)
"""


def test_sigkill_at_any_moment_loses_no_learned_fact(path: Path) -> None:
    learned: dict[str, int] = {}
    told: set[str] = set()
    dice, number = random.Random(7), 0
    for _ in range(8):
        begin = number
        command = [sys.executable, "-c", WRITER, str(path), str(begin)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
        assert process.stdout is not None
        for _ in range(dice.randrange(1, 40)):
            line = process.stdout.readline()
            assert line
            number = int(line)
            learned[f"tenant-{number % 7}"] = GIB + number
        time.sleep(dice.random() * 0.01)
        process.send_signal(signal.SIGKILL)
        for line in process.stdout:
            number = int(line)
            learned[f"tenant-{number % 7}"] = GIB + number
        told |= {f"plan-{each}" for each in range(begin, number)}
        process.stdout.close()
        assert process.wait() == -signal.SIGKILL
        with opened(path) as station:
            found = {each.tenant: each.value for each in station.facts}
            assert found.keys() >= learned.keys()
            assert all(found[tenant] >= value for tenant, value in learned.items())
            connection = sqlite3.connect(path)
            assert told <= {plan for [plan] in connection.execute("SELECT plan FROM events")}, "but for the last batch"
            connection.close()
            assert not station.store.status.set_aside
        number += 1


def test_a_large_file_is_looked_through_without_anybody_waiting(path: Path) -> None:
    database = Database(path)
    for number in range(40):
        database.write(points(5000, Series("used", f"GPU-{number}")), [], 0)
    database.write_facts([(fact().key, fact())])
    database.close()
    station = Station(path)
    started = time.monotonic()
    station.store.start()
    assert time.monotonic() - started < 0.1
    assert station.has_recalled.wait(10)
    assert station.facts == {fact()}
    assert station.store.close(), "and it ends in the middle of that"


def test_what_is_not_known_any_more_is_noted(path: Path) -> None:
    with opened(path) as station:
        station.store.put_points([Point(Series("used", "GPU-1"), EPOCH, None)])
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT value FROM samples").fetchall() == [(None,)]
    connection.close()
