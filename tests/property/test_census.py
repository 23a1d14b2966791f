"""The census conserves bytes and never fails, whoever the processes say they are."""

import functools

from hypothesis import given
from hypothesis import strategies as st

from gpusupervisor.processes.cgroup import parse_cgroup
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.processes.procfs import parse_stat
from gpusupervisor.tenants.catalog import SHIPPED, Catalog, load_catalog
from gpusupervisor.tenants.recognizer import Recognizer
from gpusupervisor.tenants.schema import ID
from gpusupervisor.tenants.take_census import take_census
from tests.tenants.people import COMPUTE, GRAPHICS, HEX, SESSION, USER, gpu, sample, who

cgroups = st.sampled_from(
    [
        SESSION,
        f"{USER}/x.service",
        "/system.slice/ollama.service",
        "/system.slice/comfyui@é.service",
        f"/docker/{HEX}",
        "/",
    ]
) | st.text(max_size=20).map(lambda text: f"/system.slice/comfyui-{text}.service")
command_lines = st.sampled_from(
    ["ollama runner --model m", "python /x/ComfyUI/main.py --port 8189", "llama-server --port 1", "x", "", "firefox"]
) | st.text(max_size=30)
identities = st.dictionaries(st.integers(2, 9), st.tuples(command_lines, cgroups), max_size=6)
holdings = st.dictionaries(st.integers(2, 12), st.none() | st.integers(0, 2**35), max_size=8)


@functools.cache
def shipped() -> Catalog:
    return load_catalog([SHIPPED])


def people(found: dict[int, tuple[str, str]]) -> dict[int, ProcessIdentity]:
    return {pid: who(pid, line, cgroup=cgroup) for pid, (line, cgroup) in found.items()}


@given(identities, holdings, holdings, st.integers(0, 2**35))
def test_bytes_are_conserved(
    found: dict[int, tuple[str, str]], first: dict[int, int | None], second: dict[int, int | None], used: int
) -> None:
    gpus = (gpu("A", used=used, processes=first), gpu("B", used=used, processes=second, kinds=COMPUTE | GRAPHICS))
    known = people(found)
    census = take_census(sample(*gpus), known, shipped(), Recognizer())
    for each, sizes in zip(gpus, (first, second), strict=True):
        account = census.gpus[each.identity.uuid]
        unmanaged = sum(holder.used or 0 for holder in account.unmanaged)
        attributed = sum(account.tenants.values()) + unmanaged
        assert attributed == sum(size or 0 for pid, size in sizes.items() if pid in known)
        assert attributed + account.unattributed == max(used, attributed)
        held = {tenant: each.holdings.get(account.gpu, 0) for tenant, each in census.tenants.items()}
        assert {tenant: size for tenant, size in held.items() if size} == {
            tenant: size for tenant, size in account.tenants.items() if size
        }
    assert all(ID.fullmatch(tenant) for tenant in census.tenants)


@given(identities, holdings)
def test_the_order_of_definitions_does_not_matter(
    found: dict[int, tuple[str, str]], sizes: dict[int, int | None]
) -> None:
    catalog = shipped()
    turned = Catalog(dict(reversed(list(catalog.definitions.items()))), {}, (), catalog.trees)
    views = [take_census(sample(gpu(processes=sizes)), people(found), each, Recognizer()) for each in (catalog, turned)]
    assert views[0] == views[1]


@given(st.text(max_size=200))
def test_any_text_is_a_place(text: str) -> None:
    place = parse_cgroup(text)
    assert place.path == "" or place.path.startswith("/")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_process_or_nobody(content: bytes) -> None:
    stat = parse_stat(content)
    assert stat is None or not set(stat.comm) & {"\n", "\x00", "\x1b", "\x7f", "\x9b"}
