"""What systemd is told, over a real datagram socket."""

import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from gpusupervisor.notify import STATUS_INTERVAL, Notifier
from tests.notify_socket import NotifySocket

END = "WATCHDOG=1"


@dataclass
class HandClock:
    """Moves when told."""

    time: int = 1_000_000_000

    def now(self) -> int:
        return self.time

    def realtime(self, instant: int) -> int:
        return instant


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def systemd() -> Iterator[NotifySocket]:
    listener = NotifySocket()
    yield listener
    listener.close()


@pytest.fixture
def notifier(systemd: NotifySocket, clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notifier]:
    monkeypatch.setenv("NOTIFY_SOCKET", systemd.address)
    one = Notifier(clock)
    yield one
    one._notifier.socket.close()


def told(systemd: NotifySocket, notifier: Notifier) -> list[str]:
    """Everything that was sent so far; datagrams keep their order, so one at the end closes it."""
    ends = systemd.messages.count(END) + 1
    notifier.alive()
    systemd.wait_for(lambda messages: messages.count(END) == ends, "the last message")
    return [message for message in systemd.messages if message != END]


def test_the_messages_are_systemds(systemd: NotifySocket, notifier: Notifier) -> None:
    notifier.ready()
    notifier.stopping()
    assert told(systemd, notifier) == ["READY=1", "STOPPING=1"]


def test_a_reload_begins_with_the_time_in_the_same_datagram(systemd: NotifySocket, notifier: Notifier) -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notifier.reloading()
    (message,) = told(systemd, notifier)
    first, second = message.split("\n")
    assert first == "RELOADING=1"
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    assert before <= int(second.removeprefix("MONOTONIC_USEC=")) <= after


def test_text_beyond_latin_1_arrives_intact(systemd: NotifySocket, notifier: Notifier) -> None:
    notifier.status("RTX 4090: 13,1 GiB — ollama größer 模型 €")
    assert told(systemd, notifier) == ["STATUS=RTX 4090: 13,1 GiB — ollama größer 模型 €"]


def test_a_status_stays_on_one_line_so_that_it_cannot_say_anything_else(
    systemd: NotifySocket, notifier: Notifier
) -> None:
    notifier.status("held by x\nMAINPID=1\r\nREADY=1")
    assert told(systemd, notifier) == ["STATUS=held by x MAINPID=1 READY=1"]


def test_a_status_that_did_not_change_is_not_sent_again(
    systemd: NotifySocket, notifier: Notifier, clock: HandClock
) -> None:
    for _ in range(3):
        notifier.status("healthy")
        clock.time += 2 * STATUS_INTERVAL
    assert told(systemd, notifier) == ["STATUS=healthy"]


def test_a_changed_status_waits_for_the_interval_and_is_then_sent(
    systemd: NotifySocket, notifier: Notifier, clock: HandClock
) -> None:
    notifier.status("first")
    for text in ("second", "third"):
        clock.time += STATUS_INTERVAL // 2 - 1
        notifier.status(text)
    assert told(systemd, notifier) == ["STATUS=first"]
    clock.time += 2
    notifier.status("third")
    assert told(systemd, notifier) == ["STATUS=first", "STATUS=third"]


def test_a_status_that_came_and_went_within_the_interval_is_never_sent(
    systemd: NotifySocket, notifier: Notifier, clock: HandClock
) -> None:
    for text in ("healthy", "a flicker", "healthy"):
        notifier.status(text)
        clock.time += 1000
    clock.time += STATUS_INTERVAL
    notifier.status("healthy")
    assert told(systemd, notifier) == ["STATUS=healthy"]


def test_an_urgent_status_does_not_wait_but_the_next_one_does(
    systemd: NotifySocket, notifier: Notifier, clock: HandClock
) -> None:
    notifier.status("healthy")
    notifier.status("reload failed", urgent=True)
    notifier.status("healthy")
    assert told(systemd, notifier) == ["STATUS=healthy", "STATUS=reload failed"]
    clock.time += STATUS_INTERVAL
    notifier.status("healthy")
    assert told(systemd, notifier)[-1] == "STATUS=healthy"


def test_children_do_not_inherit_the_right_to_speak(
    systemd: NotifySocket, notifier: Notifier, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        assert name not in os.environ
        monkeypatch.setenv(name, "")
    Notifier(clock)
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & os.environ.keys()


def test_nothing_happens_without_systemd(clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> socket.socket:
        raise AssertionError("no socket is wanted")

    monkeypatch.setattr(socket, "socket", refuse)
    notifier = Notifier(clock)
    notifier.ready()
    notifier.reloading()
    notifier.status("healthy", urgent=True)
    notifier.alive()
    notifier.stopping()


def test_an_abstract_socket_is_spoken_to(clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        name = f"gpusupervisor-test-{os.getpid()}"
        listener.bind(f"\0{name}")
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        notifier = Notifier(clock)
        notifier.ready()
        assert listener.recv(100) == b"READY=1"
        notifier._notifier.socket.close()
