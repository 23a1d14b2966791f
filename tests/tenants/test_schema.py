"""The schema of tenant files."""

import tomllib
from collections.abc import Mapping

import pytest

from gpusupervisor.configuration.layers import key_text
from gpusupervisor.tenants.definition import ForEach, ProbeSpec, ReleaseMethod, TenantDefinition, VersionRequirement
from gpusupervisor.tenants.schema import check_definition, normalize

MINIMAL = 'title = "App"\n[match]\nunits = ["app.service"]\n'
WITH_ENDPOINT = MINIMAL + '[endpoint]\nurl = "http://127.0.0.1:9000"\n'


def check(text: str, tenant_id: str = "app") -> tuple[TenantDefinition | None, Mapping[str, str]]:
    definition, findings = check_definition(tenant_id, normalize(tomllib.loads(text)))
    return definition, {key_text(path): message for path, message in findings}


def good(text: str) -> TenantDefinition:
    definition, problems = check(text)
    assert problems == {}
    assert definition is not None
    return definition


def test_a_title_and_a_match_are_enough() -> None:
    definition = good(MINIMAL)
    assert (definition.id, definition.title, definition.match.units) == ("app", "App", ("app.service",))
    assert definition.activity is None
    assert definition.release == ()


def test_every_top_level_key_arrives_in_its_unit() -> None:
    definition = good(
        'engine = "ollama"\npriority = 70\nidle-priority = 0\nprotected = true\nper-instance = true\n'
        'needs-vram = "13G"\nfloor = "300M"\nless-helps = true\nrelease-pinned = true\nidle-release-after = "10min"\n'
        'min-residency = 5\ncooldown = "1min"\nrelease-budget = 3\n' + MINIMAL
    )
    assert (definition.priority, definition.idle_priority, definition.protected) == (70, 0, True)
    assert (definition.needs_vram, definition.floor) == (13 << 30, 300 << 20)
    assert (definition.idle_release_after, definition.min_residency) == (600_000_000, 5_000_000)
    assert (definition.cooldown, definition.release_budget) == (60_000_000, 3)
    assert definition.less_helps
    assert definition.release_pinned
    assert definition.per_instance


def test_auto_need_is_what_the_engine_reports() -> None:
    assert good('needs-vram = "auto"\n' + MINIMAL).needs_vram is None


def test_the_probe_shorthand_comes_first_and_probes_corroborate() -> None:
    definition = good(
        WITH_ENDPOINT + '[activity]\nprobe = "ollama"\n[[activity.probes]]\nkind = "cpu"\nthreshold = 5\n'
    )
    assert definition.activity is not None
    assert [probe.kind for probe in definition.activity.probes] == ["ollama", "cpu"]
    assert definition.activity.probes[1] == ProbeSpec("cpu", idle_after=10_000_000, threshold=5.0)


def test_a_unit_may_be_stopped_as_a_release() -> None:
    text = MINIMAL + '[[release]]\nmethod = "unit"\nunit = "llama@a.service"\naction = "restart"\nsettle = "5s"\n'
    (rung,) = good(text).release
    assert (rung.method, rung.unit, rung.action, rung.settle) == ("unit", "llama@a.service", "restart", 5_000_000)


def test_a_users_unit_may_be_stopped_as_a_release() -> None:
    (rung,) = good(MINIMAL + '[[release]]\nmethod = "unit"\nuser-unit = "llama.service"\nuser = "alice"\n').release
    assert (rung.unit, rung.user_unit, rung.user) == ("", "llama.service", "alice")


def test_a_release_is_read_whole() -> None:
    definition = good(
        WITH_ENDPOINT + '[[release]]\nfor-each = { get = "/api/ps", items = "models[].name" }\npost = "/api/generate"\n'
        'json = { model = "{item}", keep_alive = 0 }\nquery = { level = 1 }\nheaders = { X-A = "b" }\n'
        'success-when = "done_reason == \'unload\'"\nwhen-busy = "deferred"\n'
        'version = { get = "/api/version", value = "version", minimum = "0.3.11" }\nsettle = "30s"\ntimeout = "5s"\n'
    )
    assert definition.release == (
        ReleaseMethod(
            method="http",
            verb="POST",
            path="/api/generate",
            query=(("level", "1"),),
            json={"model": "{item}", "keep_alive": 0},
            headers=(("X-A", "b"),),
            for_each=ForEach("/api/ps", "models[].name"),
            success_when="done_reason == 'unload'",
            when_busy="deferred",
            version=VersionRequirement("/api/version", "version", "0.3.11"),
            settle=30_000_000,
            timeout=5_000_000,
        ),
    )


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("prioritty = 3\n" + MINIMAL, "prioritty", 'did you mean "priority"?'),
        ("priority = 101\n" + MINIMAL, "priority", "from 0 to 100"),
        ("priority = true\n" + MINIMAL, "priority", "is true"),
        ('protected = "yes"\n' + MINIMAL, "protected", "true, false"),
        ('needs-vram = "13XB"\n' + MINIMAL, "needs-vram", '"auto"'),
        ("needs-vram = 0\n" + MINIMAL, "needs-vram", "more than 0"),
        ('floor = "infinity"\n' + MINIMAL, "floor", "600M"),
        ('cooldown = "soon"\n' + MINIMAL, "cooldown", "from 0 to 1d"),
        ('idle-release-after = "10ms"\n' + MINIMAL, "idle-release-after", "infinity"),
        ('title = "a\\u001bb"\n[match]\nunits = ["a"]\n', "title", "control characters"),
        ('[match]\nunits = ["a"]\n', "title", "missing"),
        ('title = "A"\n', "match", "at least one of"),
        ('title = "A"\n[match]\nunits = ["**"]\n', "match.units[0]", "matches everything"),
        ('title = "A"\n[match]\nunits = "a.service"\n', "match.units", "a list of texts"),
        ('title = "A"\n[match]\nunits = [3]\n', "match.units[0]", "a text in quotes"),
        (MINIMAL + '[endpoint]\nurl = "ftp://127.0.0.1"\n', "endpoint.url", "http or https"),
        (MINIMAL + '[endpoint]\nurl = "http://user:pw@host:1"\n', "endpoint.url", "more than scheme"),
        (MINIMAL + '[endpoint]\nurl = "http://127.0.0.1:99999"\n', "endpoint.url", "no URL"),
        (MINIMAL + '[endpoint]\nurl = "http://127.0.0.1:1/api"\n', "endpoint.url", "more than scheme"),
        (MINIMAL + "[endpoint]\n", "endpoint.url", "missing"),
        (WITH_ENDPOINT + 'port-flags = ["port"]\n', "endpoint.port-flags[0]", "--port"),
        (WITH_ENDPOINT + 'host-variable = "A=B"\n', "endpoint.host-variable", "OLLAMA_HOST"),
        (WITH_ENDPOINT + 'host-variable = ["A"]\n', "endpoint.host-variable", "text"),
        (MINIMAL + '[activity]\nprobe = "ollama"\n', "activity.probes[0].kind", "[endpoint]"),
        (MINIMAL + '[activity]\nprobe = "gpu"\n', "activity.probes[0].kind", "sm-utilization"),
        (MINIMAL + "[activity]\n", "activity.probes", "missing"),
        (MINIMAL + '[[activity.probes]]\nkind = "cpu"\nget = "/x"\n', "activity.probes[0].get", "unknown key"),
        (WITH_ENDPOINT + '[[activity.probes]]\nkind = "http"\nget = "/q"\n', "activity.probes[0].busy-when", "missing"),
        (
            WITH_ENDPOINT + '[[activity.probes]]\nkind = "http"\nget = "/q"\nbusy-when = "a["\n',
            "activity.probes[0].busy-when",
            "no JMESPath expression",
        ),
        (
            WITH_ENDPOINT + '[[activity.probes]]\nkind = "http"\nget = "/q"\nfirst = "/p"\nbusy-when = "a"\n',
            "activity.probes[0].first",
            "belong together",
        ),
        (
            WITH_ENDPOINT + '[[activity.probes]]\nkind = "prometheus"\n',
            "activity.probes[0].busy-metrics",
            "at least one",
        ),
        (MINIMAL + '[[release]]\npost = "/free"\n', "release[0].method", "[endpoint]"),
        (WITH_ENDPOINT + "[[release]]\n", "release[0]", "exactly one of get, post, put, delete"),
        (WITH_ENDPOINT + '[[release]]\npost = "//evil/free"\n', "release[0].post", "a path at the endpoint"),
        (WITH_ENDPOINT + '[[release]]\npost = "/a\\n"\n', "release[0].post", "control characters"),
        (WITH_ENDPOINT + '[[release]]\nget = "/a"\njson = {}\n', "release[0].json", "a GET has no body"),
        (WITH_ENDPOINT + '[[release]]\ndelete = "/a/{item}"\n', "release[0].for-each", "no for-each"),
        (
            WITH_ENDPOINT + '[[release]]\npost = "/a"\nfor-each = { get = "/b", items = "c" }\n',
            "release[0].for-each",
            "used nowhere",
        ),
        (WITH_ENDPOINT + '[[release]]\npost = "/a"\nheaders = { Host = "b" }\n', "release[0].headers.Host", "itself"),
        (WITH_ENDPOINT + '[[release]]\npost = "/a"\nwhen-busy = "maybe"\n', "release[0].when-busy", "deferred"),
        (WITH_ENDPOINT + '[[release]]\npost = "/a"\nmethod = "exec"\n', "release[0].method", "http"),
        (MINIMAL + '[[release]]\nmethod = "unit"\n', "release[0].unit", "is missing"),
        (MINIMAL + '[[release]]\nmethod = "unit"\nunit = "a.socket"\n', "release[0].unit", "no service"),
        (MINIMAL + '[[release]]\nmethod = "unit"\nuser-unit = "a.service"\n', "release[0].user", "is missing"),
        (MINIMAL + '[[release]]\nmethod = "unit"\nunit = "a.service"\nuser = "a"\n', "release[0].user-unit", "missing"),
        (
            MINIMAL + '[[release]]\nmethod = "unit"\nuser-unit = "a.service"\nuser = "a b"\n',
            "release[0].user",
            "no account",
        ),
        (
            MINIMAL + '[[release]]\nmethod = "unit"\nunit = "a.service"\nuser-unit = "a.service"\nuser = "a"\n',
            "release[0].user-unit",
            "one of the two",
        ),
        (MINIMAL + '[[release]]\nmethod = "unit"\nunit = "a.service"\npost = "/a"\n', "release[0].post", ""),
        (
            WITH_ENDPOINT + '[[release]]\npost = "/a"\nversion = { get = "/v", value = "v", minimum = "new" }\n',
            "release[0].version.minimum",
            "numbers with dots",
        ),
        (MINIMAL + "[release]\n", "release", "[[release]]"),
    ],
)
def test_what_is_wrong_is_named_with_its_key_and_what_is_allowed(text: str, key: str, message: str) -> None:
    definition, problems = check(text)
    assert definition is None
    assert message in problems[key]


def test_all_problems_are_collected_not_just_the_first() -> None:
    _, problems = check('priority = -1\ncolour = "red"\n[match]\nunit = ["a"]\n')
    assert set(problems) == {"title", "priority", "colour", "match", "match.unit"}


@pytest.mark.parametrize("tenant_id", ["", "a b", "é", "x" * 65, "a/b"])
def test_the_id_is_checked(tenant_id: str) -> None:
    definition, problems = check(MINIMAL, tenant_id)
    assert definition is None
    assert "letters, digits" in problems[""]


def test_models_are_warmed_by_themselves_only_where_a_file_says_so() -> None:
    models = MINIMAL + '[models]\ndirectories = ["/srv/models"]\n'
    for text, by_itself in (("", False), ('warm = "auto"\n', True), ('warm = "off"\n', False)):
        found = good(models + text).models
        assert found is not None
        assert found.warm_by_itself == by_itself
