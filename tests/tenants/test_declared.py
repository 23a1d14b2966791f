"""Units that declare themselves tenants: root's may say much, users' little, and nobody an address or a release."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.tenants.catalog import SHIPPED, load_catalog
from gpusupervisor.tenants.census import Census, TenantPresence
from gpusupervisor.tenants.declared import VARIABLES, Declared, tempered, with_declarations
from gpusupervisor.tenants.definition import TenantDefinition
from gpusupervisor.tenants.recognizer import Recognizer
from gpusupervisor.tenants.take_census import take_census

from .people import GIB, USER, gpu, sample, who

BASE = load_catalog([SHIPPED])
UNIT = "/system.slice/{}.service"


def declare(**units: Mapping[str, str]) -> Declared:
    """Variables by unit, without what is the same of all."""
    return with_declarations(
        BASE,
        {
            f"{unit.replace('_', '-')}.service": {f"GPUSUPERVISOR_{name}": text for name, text in said.items()}
            for unit, said in units.items()
        },
    )


def census(declared: Declared, *identities: ProcessIdentity) -> Census:
    processes = {each.key.pid: GIB for each in identities}
    return take_census(
        sample(gpu(processes=processes)), {each.key.pid: each for each in identities}, declared.catalog, Recognizer()
    )


def tenant_of(declared: Declared, identity: ProcessIdentity) -> str:
    (tenant,) = census(declared, identity).gpus["GPU-1"].tenants
    return tenant


def test_a_unit_joins_the_tenant_that_it_names_and_is_asked_as_that_is() -> None:
    declared = declare(my_images={"TENANT": "comfyui", "PRIORITY": "70", "NEEDS_VRAM": "12G", "TITLE": "Pictures"})
    assert declared.problems == ()
    process = who(7, "/opt/x/python run.py --port 9999", cgroup=UNIT.format("my-images"))
    found = census(declared, process).tenants["comfyui@my-images"]
    assert found.holders[0].why == "unit my-images.service, which declares it"
    assert found.endpoint == "http://127.0.0.1:9999"
    definition = declared.catalog.resolve("comfyui@my-images")
    assert (definition.title, definition.priority, definition.needs_vram) == ("Pictures", 70, 12 * GIB)
    assert definition.release == BASE.definitions["comfyui"].release
    assert definition.activity == BASE.definitions["comfyui"].activity
    assert declared.catalog.resolve("comfyui").priority == 50, "the others are as they were"
    assert "priority = 70  # from unit my-images.service" in declared.catalog.explain("comfyui@my-images")


def test_a_declared_unit_is_not_looked_for_at_anothers_address_while_it_is_away() -> None:
    declared = declare(my_images={"TENANT": "comfyui", "PRIORITY": "70"})
    found = census(declared, who(8, "python3 /opt/ComfyUI/main.py")).tenants
    assert (found["comfyui"].endpoint, found["comfyui@my-images"].endpoint) == ("http://127.0.0.1:8188", "")


def test_the_units_word_beats_what_its_name_or_program_looks_like() -> None:
    declared = declare(llama_server={"TENANT": "chat"}, comfyui={"TENANT": "llama-router"})
    server = who(7, "/usr/bin/ollama serve", executable="/usr/bin/ollama", cgroup=UNIT.format("llama-server"))
    assert tenant_of(declared, server) == "chat"
    assert tenant_of(declared, who(8, "python main.py", cgroup=UNIT.format("comfyui"))) == "llama-router@comfyui"
    assert tenant_of(declare(), server) == "llama-server"


def test_a_unit_of_a_name_of_its_own_is_a_tenant_that_is_seen_to_work_but_cannot_be_asked() -> None:
    declared = declare(trainer={"TENANT": "trainer", "NEEDS_VRAM": "20G", "PROTECTED": "yes"})
    assert declared.problems == ()
    own = declared.catalog.definitions["trainer"]
    assert (own.title, own.priority, own.needs_vram, own.protected) == ("trainer", 50, 20 * GIB, True)
    assert (own.release, own.endpoint, own.engine) == ((), None, "")
    assert own.activity is not None
    assert [probe.kind for probe in own.activity.probes] == ["sm-utilization", "cpu", "vram"]
    assert tenant_of(declared, who(7, "python train.py", cgroup=UNIT.format("trainer"))) == "trainer"
    assert "needs-vram" in declared.catalog.explain("trainer")


def test_two_units_may_be_one_tenant_and_must_not_contradict_each_other() -> None:
    declared = declare(a={"TENANT": "batch", "PRIORITY": "20"}, b={"TENANT": "batch", "PRIORITY": "20"})
    assert declared.problems == ()
    one, two = who(7, "x", cgroup=UNIT.format("a")), who(8, "y", cgroup=UNIT.format("b"))
    assert census(declared, one, two).gpus["GPU-1"].tenants == {"batch": 2 * GIB}
    apart = declare(a={"TENANT": "batch", "PRIORITY": "20"}, b={"TENANT": "batch", "PRIORITY": "30"})
    assert [str(each) for each in apart.problems] == [
        "unit b.service: GPUSUPERVISOR_PRIORITY: contradicts what unit a.service says about batch"
    ]
    instances = declare(a={"TENANT": "vllm", "PRIORITY": "20"}, b={"TENANT": "vllm", "PRIORITY": "30"})
    assert instances.problems == ()
    assert [instances.catalog.resolve(f"vllm@{unit}").priority for unit in "ab"] == [20, 30]


@pytest.mark.parametrize(
    ("said", "variable", "complaint"),
    [
        ({"PRIORITY": "30"}, "TENANT", "is missing"),
        ({"TENANT": "a b"}, "TENANT", "letters, digits"),
        ({"TENANT": "comfyui@x"}, "TENANT", "letters, digits"),
        ({"TENANT": "x" * 65}, "TENANT", "letters, digits"),
        ({"TENANT": "ollama", "PRIORITY": "high"}, "PRIORITY", "allowed: a whole number from 0 to 100"),
        ({"TENANT": "ollama", "PRIORITY": "101"}, "PRIORITY", "from 0 to 100"),
        ({"TENANT": "ollama", "PRIORITY": "-1"}, "PRIORITY", "from 0 to 100"),
        ({"TENANT": "ollama", "NEEDS_VRAM": "lots"}, "NEEDS_VRAM", "allowed:"),
        ({"TENANT": "ollama", "NEEDS_VRAM": "0"}, "NEEDS_VRAM", "more than 0"),
        ({"TENANT": "ollama", "TITLE": ""}, "TITLE", "not empty"),
        ({"TENANT": "ollama", "TITLE": "x" * 65}, "TITLE", "longer than 64"),
        ({"TENANT": "ollama", "PROTECTED": "no"}, "PROTECTED", "can only be yes"),
        ({"TENANT": "ollama", "PROTECTED": "maybe"}, "PROTECTED", "can only be yes"),
        ({"TENANT": "new", "PRIORITY": "high"}, "PRIORITY", "allowed: a whole number"),
        ({"TENANT": "ollama", "RELEASE": "/free"}, "RELEASE", "is no variable; there are"),
        ({"TENANT": "ollama", "URL": "http://x"}, "URL", "is no variable"),
    ],
)
def test_a_mistake_is_named_with_its_unit_and_variable(said: Mapping[str, str], variable: str, complaint: str) -> None:
    (problem,) = declare(app=said).problems
    assert (problem.file, problem.key) == ("unit app.service", f"GPUSUPERVISOR_{variable}")
    assert complaint in problem.message


@pytest.mark.parametrize("tenant", ["ollama", "new"])
def test_whose_declaration_has_a_mistake_is_not_asked_until_it_is_corrected(tenant: str) -> None:
    declared = declare(app={"TENANT": tenant, "PROTECTED": "ja", "PRIORITY": "90"})
    process = who(7, "x", cgroup=UNIT.format("app"))
    found = tenant_of(declared, process)
    definition = declared.catalog.resolve(found)
    assert (definition.protected, definition.priority) == (True, 50)
    assert declared.catalog.explain(found)


def test_a_declaration_cannot_lift_protection() -> None:
    declared = declare(screen={"TENANT": "desktop", "PRIORITY": "1"})
    assert declared.catalog.definitions["desktop"].protected


def user_process(pid: int = 7, uid: int = 1000, /, **said: str) -> ProcessIdentity:
    variables = {f"GPUSUPERVISOR_{name}": text for name, text in said.items()}
    process = who(pid, "python main.py", cgroup=f"{USER}/comfyui.service", variables=variables)
    return replace(process, uid=uid)


def temper(*identities: ProcessIdentity, priority: int = 50) -> tuple[TenantDefinition, list[str]]:
    found: TenantPresence = census(declare(), *identities).tenants["comfyui"]
    definition, problems = tempered(replace(BASE.definitions["comfyui"], priority=priority), found)
    return definition, [str(problem) for problem in problems]


def test_a_users_unit_may_describe_itself_and_yield() -> None:
    definition, problems = temper(user_process(TITLE="Mine", NEEDS_VRAM="9G", PRIORITY="30"))
    assert problems == []
    assert (definition.title, definition.needs_at_most, definition.priority) == ("Mine", 9 * GIB, 30)
    assert definition.needs_vram is None


@pytest.mark.parametrize(("said", "counts"), [("4G", 4 * GIB), ("20G", 8 * GIB)])
def test_a_users_unit_can_lower_the_need_of_roots_file_and_not_raise_it(said: str, counts: int) -> None:
    found = census(declare(), user_process(NEEDS_VRAM=said)).tenants["comfyui"]
    definition, problems = tempered(replace(BASE.definitions["comfyui"], needs_vram=8 * GIB), found)
    assert definition.needs_vram == counts
    assert [each.message for each in problems] == (
        ["a user's unit can only lower it, to 8.0 GiB at most"] if said == "20G" else []
    )


@pytest.mark.parametrize(
    ("said", "variable"),
    [({"PRIORITY": "90"}, "PRIORITY"), ({"TENANT": "ollama"}, "TENANT"), ({"PROTECTED": "yes"}, "PROTECTED"),
     ({"PRIORITY": "x"}, "PRIORITY"), ({"NEEDS_VRAM": "x"}, "NEEDS_VRAM"), ({"TITLE": "x" * 65}, "TITLE")],
)  # fmt: skip
def test_a_users_unit_can_take_nothing_for_itself(said: Mapping[str, str], variable: str) -> None:
    definition, problems = temper(user_process(7, 1000, **said))
    assert definition == BASE.definitions["comfyui"]
    assert len(problems) == 1
    assert problems[0].startswith(f"user unit comfyui.service: GPUSUPERVISOR_{variable}: ")


def test_a_users_unit_says_nothing_of_what_is_not_all_its_own() -> None:
    mine = user_process(7, PRIORITY="10", NEEDS_VRAM="20G")
    for other in (who(8, "python main.py", cgroup="/system.slice/comfyui.service"), user_process(8, 1001)):
        definition, problems = temper(mine, other)
        assert (definition, problems) == (BASE.definitions["comfyui"], [])


def test_what_the_processes_of_a_users_unit_do_not_agree_on_is_not_said() -> None:
    definition, _ = temper(user_process(7, PRIORITY="10", TITLE="A"), user_process(8, PRIORITY="10", TITLE="B"))
    assert (definition.priority, definition.title) == (10, "ComfyUI")


@pytest.mark.parametrize("cgroup", ["/system.slice/comfyui.service", "/user.slice/user-1000.slice/session-3.scope"])
def test_variables_of_a_process_elsewhere_say_nothing(cgroup: str) -> None:
    variables = dict.fromkeys(VARIABLES, "1")
    found = census(declare(), who(7, "python /x/ComfyUI/main.py", cgroup=cgroup, variables=variables)).tenants[
        "comfyui"
    ]
    assert tempered(BASE.definitions["comfyui"], found) == (BASE.definitions["comfyui"], ())


def test_a_process_cannot_pass_for_a_declared_unit_by_a_user_unit_of_its_name() -> None:
    declared = declare(trainer={"TENANT": "trainer", "PRIORITY": "100"})
    impostor = who(7, "python train.py", cgroup=f"{USER}/trainer.service")
    assert census(declared, impostor).tenants["trainer"].holders == ()
