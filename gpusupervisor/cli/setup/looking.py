"""Asking the service, systemd and the user's own systemd what is on the machine."""

import asyncio
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from dbus_fast import Variant

from gpusupervisor.cli import shapes
from gpusupervisor.cli.client import ROOT, TENANTS, Client, Objects
from gpusupervisor.cli.exits import CommandFailed
from gpusupervisor.cli.setup.findings import Findings, Process, Tenant, Unit
from gpusupervisor.cli.setup.front import LOOPBACK, Front, front_of
from gpusupervisor.cli.setup.systemd import Service, connected, services, user_bus
from gpusupervisor.cli.shapes import Shape
from gpusupervisor.unit_syntax import expanded

Told = Mapping[int, Mapping[str, Any]]
"""By PID: how a process was started."""

_BATCH = 256
_PATIENCE = 5
"""Seconds."""
_NO_USER_BUS = "Your own user services were not checked: the bus of your user's systemd cannot be reached."
_NO_SYSTEMD = "System services were not checked: systemd does not answer."


async def look(client: Client, *, thoroughly: bool) -> Findings:
    """Everything. thoroughly: also how processes were started, which only who may is told."""
    notes: list[str] = []
    objects = await _after_the_first_look(client)
    tenants = shapes.tenants(objects)
    gpus = shapes.gpus(objects)
    units = await _units(client, notes)
    seen = {each["id"] for each in tenants if each["holding"] or each["processes"]} | {unit.tenant for unit in units}
    definitions = await _definitions(client, sorted(seen))
    engines = {each["id"]: each for each in shapes.engines(objects)}
    by_id = {each["id"]: each for each in tenants}
    held = [process for each in (*tenants, *gpus) for process in each.get("processes", each.get("unmanaged", ()))]
    told = await _told(client, {each["pid"] for each in held}) if thoroughly else {}
    return Findings(
        driver=next(each for each in shapes.health(objects)["checks"] if each["id"] == "driver"),
        gpus=tuple(gpus),
        tenants={
            each: _tenant(each, by_id.get(each, {}), engines.get(each, {}), definitions[each], told)
            for each in sorted(seen)
        },
        names=frozenset(by_id),
        units=tuple(units),
        strangers=_processes([each for gpu in gpus for each in gpu["unmanaged"]], told),
        notes=tuple(notes),
    )


async def fronts(client: Client, findings: Findings) -> tuple[Front, ...]:
    """Proxies for units of which the service says that it finds their engine at the new port."""
    taken = {port for each in (*findings.strangers, *_held(findings)) for port in each.ports}
    taken |= {port for unit in findings.units if (port := urlsplit(unit.endpoint).port)}
    found = []
    for unit in findings.units:
        front = front_of(unit, findings.tenants[unit.tenant], taken)
        if front is not None and await _is_found(client, unit, front):
            found.append(front)
            taken.add(front.port)
    return tuple(found)


def _held(findings: Findings) -> Iterator[Process]:
    return (process for tenant in findings.tenants.values() for process in tenant.processes)


async def _is_found(client: Client, unit: Unit, front: Front) -> bool:
    """Whether the service would know the engine's new address, by the same code that finds it later."""
    environment = tuple(f"{name}={value}" for name, value in unit.environment.items())
    moved = Service(unit.name, unit.state, front.command[0], expanded(front.command, unit.environment), environment)
    answers = await _ask_what(client, [moved], of_user=False)
    address = urlsplit(answers[0].get("endpoint", ""))
    return answers[0].get("tenant") == front.tenant and (address.hostname, address.port) == (LOOPBACK, front.port)


async def _after_the_first_look(client: Client) -> Objects:
    """All objects; a service that was just installed is given a few seconds to ask the driver."""
    for _ in range(_PATIENCE):
        manager, objects = await client.everything()
        if manager["Driver"] != "starting":
            break
        await asyncio.sleep(1)
    return objects


async def _units(client: Client, notes: list[str]) -> list[Unit]:
    """The units that are tenants', of the system and of the user."""
    found = await services(client.bus, local=not client.place.host)
    if found is None:
        notes.append(_NO_SYSTEMD)
    units = await _recognised(client, found or [], of_user=False)
    address = "" if client.place.host else user_bus(os.environ, os.geteuid())
    if not address:
        return units
    async with connected(address) as bus:
        own = await services(bus) if bus else None
    if own is None:
        notes.append(_NO_USER_BUS)
    return units + await _recognised(client, own or [], of_user=True)


async def _recognised(client: Client, found: Sequence[Service], *, of_user: bool) -> list[Unit]:
    units = []
    for start in range(0, len(found), _BATCH):
        batch = found[start : start + _BATCH]
        answers = await _ask_what(client, batch, of_user=of_user)
        units += [_unit(each, answer, of_user) for each, answer in zip(batch, answers, strict=True) if answer]
    return units


async def _ask_what(client: Client, batch: Sequence[Service], *, of_user: bool) -> list[Mapping[str, str]]:
    """What the service takes each for; an empty answer for nobody's."""
    described = [_described(each, of_user=of_user) for each in batch]
    answers: list[Mapping[str, str]] = await client.call(
        "Recognise", "aa{sv}", [described], path=f"{ROOT}/tenants", interface=TENANTS
    )
    return answers


def _described(service: Service, *, of_user: bool) -> dict[str, Variant]:
    return {
        "user_unit" if of_user else "unit": Variant("s", service.name),
        "executable": Variant("s", service.executable),
        "command_line": Variant("as", [argument[:4096] for argument in service.command_line[:_BATCH]]),
        "environment": Variant("as", [entry[:4096] for entry in service.environment[:_BATCH]]),
    }


def _unit(service: Service, answer: Mapping[str, str], of_user: bool) -> Unit:
    return Unit(
        service.name, of_user, service.state, answer["tenant"], answer["endpoint"], service.command_line,
        dict(entry.partition("=")[::2] for entry in service.environment), service.unreadable, service.command,
    )  # fmt: skip


async def _definitions(client: Client, tenants: Sequence[str]) -> dict[str, dict[str, Any]]:
    found = await asyncio.gather(*(_definition(client, each) for each in tenants))
    return dict(zip(tenants, found, strict=True))


async def _definition(client: Client, tenant: str) -> dict[str, Any]:
    """The definition in force; empty for a tenant that has gone since."""
    try:
        text = await client.call("Explain", "s", [tenant], path=f"{ROOT}/tenants", interface=TENANTS)
    except CommandFailed:
        return {}
    return tomllib.loads(text)


async def _told(client: Client, pids: Iterable[int]) -> Told:
    """How processes were started; one after the other, as the service has it. Without those that have gone since."""
    found = {}
    for pid in sorted(pids):
        try:
            found[pid] = await client.call("InspectProcess", "u", [pid])
        except CommandFailed:
            continue
    return found


def _processes(found: Iterable[Shape], told: Told) -> tuple[Process, ...]:
    """Each once, also one that is on several GPUs, with all that it holds."""
    merged: dict[int, Process] = {}
    for shape in found:
        each, other = _process(shape, told.get(shape["pid"])), merged.get(shape["pid"])
        if other is not None:
            used = None if each.used is None or other.used is None else each.used + other.used
            each = replace(each, used=used)
        merged[each.pid] = each
    return tuple(merged.values())


def _process(shape: Shape, told: Mapping[str, Any] | None) -> Process:
    return Process(
        pid=shape["pid"],
        name=shape["name"],
        used=shape["used"],
        executable=shape.get("executable", ""),
        unit=shape.get("unit", ""),
        user_unit=shape.get("user_unit", ""),
        container=shape.get("container", ""),
        ports=tuple(shape.get("ports", ())),
        path=told["executable"] if told else "",
        command_line=tuple(told["command_line"]) if told else (),
        recognised_by=shape.get("recognised_by", ""),
    )


def _tenant(name: str, shape: Shape, engine: Shape, definition: Mapping[str, Any], told: Told) -> Tenant:
    """A tenant; one that only a unit says would be there has nothing but its definition."""
    return Tenant(
        id=name,
        engine=str(definition.get("engine", "")),
        activity=shape.get("activity", "absent"),
        protected=shape.get("protected", False),
        holding=shape.get("holding", 0),
        holding_is_known=not shape.get("holdings_incomplete", False),
        need=shape.get("need"),
        endpoint=engine.get("endpoint", ""),
        reachable=engine.get("reachable", False),
        detail=engine.get("detail", ""),
        processes=_processes(shape.get("processes", ()), told),
        definition=definition,
    )
