"""Every byte is a tenant's, an unmanaged process's, or unattributed."""

import functools

from gpusupervisor.gpu.sample import GpuSample
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.tenants.catalog import SHIPPED, Catalog, load_catalog
from gpusupervisor.tenants.census import Census
from gpusupervisor.tenants.recognizer import Recognizer
from gpusupervisor.tenants.take_census import take_census

from .people import GIB, HEX, gpu, sample, who

OLLAMA = who(7, "/usr/bin/ollama runner --model /m", cgroup="/system.slice/ollama.service")
COMFYUI = who(8, "python3 /opt/ComfyUI/main.py")
SECOND = who(9, "python3 /opt/ComfyUI/main.py --port 8189")
STRANGER = who(10, "python3 train.py")


@functools.cache
def shipped() -> Catalog:
    return load_catalog([SHIPPED])


def census(identities: list[ProcessIdentity], *gpus: GpuSample) -> Census:
    return take_census(sample(*gpus), {each.key.pid: each for each in identities}, shipped(), Recognizer())


def test_every_definition_is_there_also_without_processes() -> None:
    found = census([], gpu())
    assert set(found.tenants) == set(shipped().definitions)
    assert found.tenants["ollama"].holders == ()
    assert found.tenants["ollama"].endpoint == "http://127.0.0.1:11434"
    assert found.gpus["GPU-1"].unattributed == 10 * GIB


def test_bytes_go_to_their_tenant_to_the_unmanaged_and_the_rest_is_unattributed() -> None:
    found = census([OLLAMA, COMFYUI, STRANGER], gpu(processes={7: 4 * GIB, 8: GIB, 10: 2 * GIB}))
    account = found.gpus["GPU-1"]
    assert account.tenants == {"ollama": 4 * GIB, "comfyui": GIB}
    assert [(holder.pid, holder.used) for holder in account.unmanaged] == [(10, 2 * GIB)]
    assert account.unmanaged[0].identity is STRANGER
    assert account.unattributed == 3 * GIB
    assert found.tenants["ollama"].holdings == {"GPU-1": 4 * GIB}
    assert found.tenants["ollama"].holders[0].why == "unit ollama.service"


def test_two_instances_are_two_tenants_at_their_own_endpoints() -> None:
    found = census([COMFYUI, SECOND], gpu(processes={8: GIB, 9: 2 * GIB}))
    assert found.gpus["GPU-1"].tenants == {"comfyui": GIB, "comfyui@8189": 2 * GIB}
    second = found.tenants["comfyui@8189"]
    assert (second.definition_id, second.endpoint) == ("comfyui", "http://127.0.0.1:8189")
    assert found.tenants["comfyui"].endpoint == "http://127.0.0.1:8188"


def test_a_tenant_on_two_gpus_holds_on_each() -> None:
    found = census([OLLAMA], gpu("GPU-1", processes={7: GIB}), gpu("GPU-2", processes={7: 2 * GIB}))
    assert found.tenants["ollama"].holdings == {"GPU-1": GIB, "GPU-2": 2 * GIB}


def test_an_unknown_size_is_unknown_not_nothing() -> None:
    found = census([OLLAMA, STRANGER], gpu(processes={7: None, 10: None}))
    assert found.tenants["ollama"].unknown_on == {"GPU-1"}
    assert found.tenants["ollama"].holdings == {}
    assert found.gpus["GPU-1"].unmanaged[0].used is None
    assert found.gpus["GPU-1"].unattributed == 10 * GIB


def test_a_dead_process_is_nobodys_and_counted_as_unattributed() -> None:
    account = census([], gpu(used=5 * GIB, processes={99: 4 * GIB})).gpus["GPU-1"]
    assert account.unattributed == 5 * GIB
    assert [(holder.pid, holder.identity) for holder in account.unattributed_holders] == [(99, None)]
    assert account.unmanaged == ()


def test_unattributed_is_never_below_nothing() -> None:
    assert census([OLLAMA], gpu(used=GIB, processes={7: 4 * GIB})).gpus["GPU-1"].unattributed == 0


def test_a_list_that_is_not_believed_attributes_nothing() -> None:
    found = census([OLLAMA], gpu(processes={7: 4 * GIB}, problem="attribution unavailable: scrambled"))
    assert found.tenants["ollama"].holders == ()
    assert found.gpus["GPU-1"].unattributed == 10 * GIB


def test_an_orphan_is_marked() -> None:
    orphan = who(7, "/usr/bin/ollama runner --model /m")
    found = census([orphan], gpu(processes={7: GIB}))
    assert found.tenants["ollama"].holders[0].orphan


def test_nobody_is_asked_at_an_address_where_another_tenant_is() -> None:
    boxed = who(11, "/usr/bin/ollama runner --model /m", cgroup=f"/docker/{HEX}")
    alone = census([boxed], gpu(processes={11: GIB}))
    assert alone.tenants["ollama@3f2a3f2a3f2a"].endpoint == "http://127.0.0.1:11434"
    both = census([boxed, OLLAMA], gpu(processes={7: GIB, 11: GIB}))
    assert both.tenants["ollama@3f2a3f2a3f2a"].endpoint == ""
    assert both.tenants["ollama"].endpoint == "http://127.0.0.1:11434"


def test_a_server_without_vram_says_where_its_tenant_is_asked() -> None:
    idle = who(20, "/usr/bin/ollama serve", cgroup="/system.slice/ollama.service", variables={"OLLAMA_HOST": ":4321"})
    second = who(21, "python main.py --port 8189", cgroup="/system.slice/comfyui@two.service")
    people = {each.key.pid: each for each in (idle, second)}
    found = take_census(sample(gpu()), people, shipped(), Recognizer(), servers=[20, 21, 22])
    assert found.tenants["ollama"].endpoint == "http://127.0.0.1:4321"
    assert (found.tenants["ollama"].servers, found.tenants["ollama"].holdings) == ((idle,), {})
    assert found.tenants["comfyui@two"].endpoint == "http://127.0.0.1:8189"
    assert found.gpus["GPU-1"].tenants == {}


def test_two_servers_that_would_be_asked_in_the_same_place_are_asked_there_neither() -> None:
    people = [who(pid, "python main.py", cgroup=f"/system.slice/comfyui@n{pid}.service") for pid in (30, 31)]
    by_pid = {each.key.pid: each for each in people}
    found = take_census(sample(gpu()), by_pid, shipped(), Recognizer(), servers=by_pid)
    assert [found.tenants[f"comfyui@n{pid}"].endpoint for pid in by_pid] == ["", ""]


def test_who_shares_a_usual_port_with_others_is_asked_there_only_while_something_of_it_is_there() -> None:
    nobody = census([], gpu())
    assert {each.id for each in nobody.tenants.values() if each.endpoint} == {"ollama", "comfyui"}
    whisper = who(7, "/usr/bin/whisper-server -m m")
    one = census([whisper], gpu(processes={7: GIB})).tenants
    assert (one["whisper-server"].endpoint, one["llama-server"].endpoint) == ("http://127.0.0.1:8080", "")


def test_of_two_engines_that_would_be_at_the_same_port_the_one_known_to_be_there_is_asked() -> None:
    whisper, llama = who(7, "/usr/bin/whisper-server -m m"), who(8, "/usr/bin/llama-server -m m")
    unsure = census([whisper, llama], gpu(processes={7: GIB, 8: GIB})).tenants
    assert (unsure["whisper-server"].endpoint, unsure["llama-server"].endpoint) == ("", "")
    listening = who(8, "/usr/bin/llama-server -m m", ports=(8080,))
    sure = census([whisper, listening], gpu(processes={7: GIB, 8: GIB})).tenants
    assert (sure["whisper-server"].endpoint, sure["llama-server"].endpoint) == ("", "http://127.0.0.1:8080")


def test_a_process_that_names_another_address_is_there_and_another_machine_is_not_asked_for_it() -> None:
    here = who(7, "/usr/bin/llama-server -m m --host ::1")
    found = census([here], gpu(processes={7: GIB})).tenants["llama-server"]
    assert (found.endpoint, found.endpoint_is_written) == ("http://[::1]:8080", False)
    away = who(7, "/usr/bin/ollama runner --model /m", cgroup="/system.slice/ollama.service",
               variables={"OLLAMA_HOST": "http://gpu.example"})  # fmt: skip
    found = census([away], gpu(processes={7: GIB})).tenants["ollama"]
    assert (found.endpoint, found.endpoint_is_written) == ("http://gpu.example:80", False)


def test_a_worker_is_asked_at_the_host_that_its_server_names() -> None:
    server = who(5, "/v/bin/python3 /v/bin/vllm serve m --host ::1")
    engine = who(7, "VLLM::EngineCore", parents=[server])
    found = census([engine, server], gpu(processes={7: GIB})).tenants["vllm"]
    assert found.endpoint == "http://[::1]:8000"
