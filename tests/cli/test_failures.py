"""What a person is told when the service cannot be reached or refuses."""

import pytest

from gpusupervisor.cli.exits import FAILED, NOT_ALLOWED, NOT_RUNNING, WRONG_USE, CommandFailed
from gpusupervisor.cli.failures import AuthorizationNeeded, Place, failure, stopped

HERE, THERE = Place(), Place("me@box")
BUS = "org.freedesktop.DBus.Error."


@pytest.mark.parametrize(
    ("name", "part"),
    [
        (f"{BUS}ServiceUnknown", "It is not installed"),
        ("org.freedesktop.systemd1.UnitMasked", "systemctl unmask gpusupervisor"),
        (f"{BUS}FileExists", "systemctl unmask gpusupervisor"),
        ("org.freedesktop.systemd1.NoSuchUnit", "installed, but not enabled"),
        (f"{BUS}Spawn.ChildExited", "as the bus says"),
        (f"{BUS}NoReply", "as the bus says"),
        (f"{BUS}TimedOut", "as the bus says"),
    ],
)
def test_a_service_that_does_not_answer_is_told_with_the_reason_and_how_to_start_it(name: str, part: str) -> None:
    for place in (HERE, THERE):
        told = failure(name, "as the bus says", place)
        first, *_, last = str(told).splitlines()
        assert told.exit_code == NOT_RUNNING
        assert first == f"gpusupervisor is not running{place.there}."
        assert part in str(told)
        assert last == "Start it with: " + place.command("systemctl enable --now gpusupervisor")


@pytest.mark.parametrize(
    ("state", "part"),
    [
        ("enabled", "It was stopped"),
        ("disabled", "It was stopped"),
        ("masked", "systemctl unmask gpusupervisor"),
        ("masked-runtime", "systemctl unmask gpusupervisor"),
        ("", "systemctl status gpusupervisor"),
    ],
)
def test_a_service_that_was_stopped_is_not_started_but_the_way_is_told(state: str, part: str) -> None:
    told = stopped(state, HERE)
    assert told.exit_code == NOT_RUNNING
    assert part in str(told)
    assert str(told).splitlines()[-1] == "Start it with: systemctl enable --now gpusupervisor"


def test_another_machines_commands_are_run_there() -> None:
    assert THERE.command("systemctl status x") == "ssh me@box systemctl status x"
    assert Place("me@box:2222").command("sudo x", terminal=True) == "ssh -t -p 2222 me@box sudo x"
    assert HERE.command("systemctl status x", terminal=True) == "systemctl status x"


def test_a_refusal_is_told_in_the_services_own_words() -> None:
    told = failure("org.gpusupervisor1.Error.Busy", "a plan is being carried out", HERE)
    assert (str(told), told.exit_code) == ("a plan is being carried out", FAILED)
    told = failure(f"{BUS}AccessDenied", "polkit says no", HERE)
    assert (str(told), told.exit_code) == ("polkit says no", NOT_ALLOWED)
    assert str(failure("org.example.Odd", "", HERE)) == "org.example.Odd"


def test_without_an_agent_the_same_command_with_sudo_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{BUS}InteractiveAuthorizationRequired"
    monkeypatch.setattr("sys.argv", ["/usr/bin/gpusupervisorctl", "load", "ollama", "a model"])
    refused = failure(name, "a password is needed", HERE)
    assert isinstance(refused, AuthorizationNeeded)
    first, *_, last = str(refused).splitlines()
    assert (first, last) == ("a password is needed", "sudo gpusupervisorctl load ollama 'a model'")
    remote = failure(name, "a password is needed", THERE)
    assert "-H root@box" in str(remote)
    assert remote.exit_code == NOT_ALLOWED


def test_without_a_bus_the_way_to_one_is_told() -> None:
    assert "No system bus to talk to (nothing there)" in HERE.no_bus(OSError("nothing there"))
    assert "systemd-stdio-bridge" in THERE.no_bus(EOFError())
    assert "it hung up" in THERE.no_bus(EOFError())


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("box", ["box"]), ("me@box", ["me@box"]), ("me@box:2222", ["-p", "2222", "me@box"]),
        ("::1", ["::1"]), ("me@[::1]:22", ["-p", "22", "me@::1"]), ("[fe80::1]", ["fe80::1"]),
    ],
)  # fmt: skip
def test_hosts_are_given_to_ssh_as_it_takes_them(host: str, words: list[str]) -> None:
    assert Place(host).login == words


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "me@", "-x@box", "me@-x", ":22"])
def test_what_is_no_host_never_reaches_ssh(host: str) -> None:
    with pytest.raises(CommandFailed, match="is not a machine") as caught:
        _ = Place(host).login
    assert caught.value.exit_code == WRONG_USE
