"""Configuration that is good, that is broken, and that is read again."""

from collections.abc import Iterator

import pytest

from gpusupervisor.bus import names
from tests.daemon.observer import CallFailed, Observer
from tests.daemon.station import QUICK, Daemon, Station

APP = 'title = "App"\npriority = 40\n[match]\nexecutables = ["/opt/app"]\n'
OTHER = 'title = "Other"\n[match]\nexecutables = ["/opt/other"]\n'
BROKEN = 'priority = "very"\n'


@pytest.fixture(scope="module")
def station() -> Iterator[Station]:
    one = Station()
    yield one
    one.close()


@pytest.fixture(scope="module")
def started(station: Station) -> Daemon:
    """Started with a file of /etc that spoils a shipped definition."""
    station.describe({"ollama": BROKEN})
    return station.daemon().wait_ready()


@pytest.fixture
def daemon(station: Station, started: Daemon) -> Daemon:
    """With two tenants, both described well."""
    station.settings.write_text(QUICK)
    station.describe({"ollama": "", "app": APP, "other": OTHER})
    started.reload()
    return started


async def test_a_file_with_an_error_protects_its_tenant_and_is_told(
    station: Station, started: Daemon, observer: Observer
) -> None:
    shown = await observer.sees_tenant("ollama", "what shipped of it", Id=bool)
    assert shown["Protected"] is True
    assert shown["Title"] == "Ollama"
    health = await observer.health()
    assert health["State"] == "degraded"
    (check,) = [check for check in health["Checks"] if check["id"] == "configuration"]
    assert "ollama.toml" in check["summary"]
    assert "priority" in check["summary"]
    assert check["impact"]
    assert check["remedy"]
    assert "ollama.toml" in started.log
    started.wait_status("degraded")


async def test_a_good_reload_takes_effect_and_ends_with_ready(
    station: Station, daemon: Daemon, observer: Observer
) -> None:
    station.describe({"app": APP.replace("40", "70")})
    told = daemon.reload()
    (reloading,) = [message for message in told if message.startswith("RELOADING=1\nMONOTONIC_USEC=")]
    assert told.index(reloading) < told.index("READY=1")
    await observer.sees_tenant("app", "its new priority", Priority=lambda value: value == 70)
    assert (await observer.health())["State"] == "ok"


async def test_a_broken_reload_keeps_what_was_running_and_says_so(
    station: Station, daemon: Daemon, observer: Observer
) -> None:
    station.describe({"app": APP.replace("40", '"high"'), "other": OTHER.replace("Other", "Renamed")})
    told = daemon.reload()
    (status,) = [message for message in told if message.startswith("STATUS=")]
    assert "reload failed" in status
    assert "app.toml" in status
    assert told.index(status) < told.index("READY=1")
    health = await observer.sees(names.HEALTH_PATH, "Health", "degraded", State=lambda state: state == "degraded")
    assert "reload failed" in health["Summary"]
    assert (await observer.tenant("app"))["Priority"] == 40
    assert (await observer.tenant("app"))["Protected"] is False
    assert (await observer.tenant("other"))["Title"] == "Other"
    station.describe({"app": APP})
    assert "READY=1" in daemon.reload()
    await observer.sees(names.HEALTH_PATH, "Health", "well again", State=lambda state: state == "ok")
    assert (await observer.tenant("other"))["Title"] == "Renamed"


async def test_every_problem_is_on_d_bus(station: Station, daemon: Daemon, observer: Observer) -> None:
    station.describe({"app": APP.replace("40", '"high"'), "other": OTHER + "colour = 3\n"})
    daemon.reload()
    health = await observer.sees(names.HEALTH_PATH, "Health", "degraded", State=lambda state: state == "degraded")
    told = [check["summary"] for check in health["Checks"] if check["id"].startswith("configuration")]
    assert [any(name in text for text in told) for name in ("app.toml", "other.toml")] == [True, True]


async def test_reload_over_d_bus_raises_what_is_wrong(station: Station, daemon: Daemon, observer: Observer) -> None:
    station.describe({"app": BROKEN})
    with pytest.raises(CallFailed, match=r"app\.toml") as failure:
        await observer.manager("Reload")
    assert failure.value.name == "InvalidConfiguration"
    assert "stays in force" in failure.value.text
    station.describe({"app": APP.replace("40", "41")})
    assert await observer.manager("Reload") is None
    await observer.sees_tenant("app", "its new priority", Priority=lambda value: value == 41)


async def test_broken_settings_refuse_the_reload_too(station: Station, daemon: Daemon, observer: Observer) -> None:
    station.settings.write_text('interval = "soon"\n')
    with pytest.raises(CallFailed, match="interval"):
        await observer.manager("Reload")


async def test_settings_are_taken_over(station: Station, daemon: Daemon, observer: Observer) -> None:
    await observer.sees(names.ROOT, "Manager", "automatic by default", Automatic=bool)
    station.settings.write_text(QUICK + "automatic = false\n")
    await observer.manager("Reload")
    await observer.sees(names.ROOT, "Manager", "observe-only", Automatic=lambda on: not on)


async def test_a_tenant_whose_file_is_gone_is_gone_from_the_bus(
    station: Station, daemon: Daemon, observer: Observer
) -> None:
    await observer.sees_tenant("other", "there it is", Id=bool)
    (station.tenants / "other.toml").unlink()
    await observer.manager("Reload")
    await observer.wait_for(lambda signals: [s for s in signals if s.member == "InterfacesRemoved"])
    assert await observer.tenant("other") == {}
    with pytest.raises(CallFailed) as failure:
        await observer.release("other")
    assert failure.value.name == "NoSuchTenant"


async def test_an_installed_definition_can_be_explained_and_a_new_one_checked(
    station: Station, daemon: Daemon, observer: Observer
) -> None:
    text = await observer.ask(names.TENANTS_PATH, f"{names.BUS_NAME}.Tenants", "Explain", "s", "app")
    assert "priority = 40" in text
    assert str(station.tenants / "app.toml") in text
    assert await observer.manager("CheckDefinition", "ss", "app.toml", APP) == []
    (problem,) = await observer.manager("CheckDefinition", "ss", "new.toml", APP + "colour = 3\n")
    assert "colour" in problem
    (problem,) = await observer.manager("CheckDefinition", "ss", "new.toml", APP)
    assert "also fits processes of new: they count as app" in problem
    with pytest.raises(CallFailed) as failure:
        await observer.ask(names.TENANTS_PATH, f"{names.BUS_NAME}.Tenants", "Explain", "s", "nobody")
    assert failure.value.name == "NoSuchTenant"
