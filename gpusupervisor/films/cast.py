"""Which definitions have a part in a film: the others would only be asked, at every look, whether they are there.

A tenant that no process of the film could be, and at whose address nothing answers, is absent from beginning to end.
"""

from collections.abc import Iterable
from dataclasses import replace

from gpusupervisor.clock import Clock
from gpusupervisor.films.apply import Applier
from gpusupervisor.films.seams import StagedHelper, StagedProcfs
from gpusupervisor.films.stage import Stage
from gpusupervisor.films.values import Film
from gpusupervisor.processes.reader import ProcessReader
from gpusupervisor.tenants.catalog import Catalog
from gpusupervisor.tenants.hypothetical import recognise
from gpusupervisor.tenants.instances import base_and_label
from gpusupervisor.tenants.listening import port_of_url

ALWAYS = frozenset({"desktop"})


def cast(film: Film, catalog: Catalog, clock: Clock) -> Catalog:
    """The catalogue with only those definitions that have a part."""
    stage = Stage()
    applier = Applier(stage, film.header.answers)
    present = {*ALWAYS, *film.header.tenants}
    for change in film.changes:
        applier.apply(change.picture, change.line, change.at)
        if {"processes", "gpus"} & change.picture.keys():
            present |= _recognised(stage, catalog, clock)
    for reaction in film.reactions:
        applier.apply(reaction.picture, reaction.line, film.lasts)
        present |= _recognised(stage, catalog, clock)
    ports = {int(address.rpartition(":")[2]) for address in _addresses(film)}
    known = {
        name: definition
        for name, definition in catalog.definitions.items()
        if name in present or (definition.endpoint is not None and port_of_url(definition.endpoint.url) in ports)
    }
    return replace(catalog, definitions=known)


def _recognised(stage: Stage, catalog: Catalog, clock: Clock) -> set[str]:
    """Base names of the tenants that the processes on the stage may be."""
    reader = ProcessReader(privileged=StagedHelper(stage), proc=StagedProcfs(stage, clock))
    identities = reader.identify(stage.processes)
    found = (recognise(catalog, each) for each in identities.values())
    return {base_and_label(each.tenant)[0] for each in found if each is not None}


def _addresses(film: Film) -> Iterable[str]:
    """Of everything that ever answers."""
    pictures = [each.picture for each in film.changes] + [each.picture for each in film.reactions]
    for picture in pictures:
        http = picture.get("http", {})
        if isinstance(http, dict):
            yield from (address for address in http if address.rpartition(":")[2].isdecimal())
