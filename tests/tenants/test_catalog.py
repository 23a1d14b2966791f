"""The catalog: layers, masks, problems, instances, provenance."""

import re
import tomllib
from pathlib import Path

import pytest

from gpusupervisor.errors import NoSuchTenant
from gpusupervisor.tenants import catalog as catalog_module
from gpusupervisor.tenants.catalog import SHIPPED, Catalog, load_catalog
from gpusupervisor.tenants.definition import ENGINES

BASE = """
title = "App"
priority = 50
[match]
units = ["app.service"]
[endpoint]
url = "http://127.0.0.1:9000"
port-flags = ["--port"]
"""


class Layers:
    """Three folders of tenant files."""

    def __init__(self, root: Path) -> None:
        self.folders = [root / name for name in ("usr", "etc", "run")]
        for folder in self.folders:
            folder.mkdir()
        self.usr, self.etc, self.run = self.folders

    def load(self) -> Catalog:
        return load_catalog(self.folders)


@pytest.fixture
def layers(tmp_path: Path) -> Layers:
    return Layers(tmp_path)


def test_the_shipped_definitions_have_no_problem() -> None:
    catalog = load_catalog([SHIPPED])
    assert catalog.problems == ()
    assert {each.engine for each in catalog.definitions.values()} - {""} == set(ENGINES)
    assert set(catalog.definitions) == {
        "automatic1111", "comfyui", "desktop", "invokeai", "koboldcpp", "lemonade", "llama-router", "llama-server",
        "llama-swap", "lm-studio", "localai", "ollama", "sglang", "speaches", "tabbyapi", "text-generation-webui",
        "vllm", "whisper-server",
    }  # fmt: skip


def test_the_example_documents_every_key_and_is_right() -> None:
    text = (SHIPPED / "example.toml.example").read_text()
    catalog = load_catalog([SHIPPED])
    assert "example" not in catalog.definitions
    assert catalog.check_text("transcriber.toml", text) == ()
    allowed = catalog.check_text(
        "x.toml", "a = 1\n[match]\na = 1\n[endpoint]\na = 1\n[activity]\na = 1\n[[release]]\na = 1\n"
    )
    keys = {
        key.strip()
        for problem in allowed
        if "allowed here: " in problem.message
        for key in problem.message.partition("allowed here: ")[2].split(",")
    }
    assert len(keys) > 35
    assert {key for key in keys if not re.search(rf"(?<![a-z-]){key}(?![a-z-])", text)} == set()


@pytest.mark.parametrize("name", ["automatic1111", "koboldcpp", "sglang", "tabbyapi", "vllm"])
def test_a_release_that_is_only_suggested_is_right(name: str) -> None:
    lines = (SHIPPED / f"{name}.toml").read_text().splitlines()
    snippet = "\n".join(line.removeprefix("#   ") for line in lines if line.startswith("#   "))
    assert tomllib.loads(snippet)["release"][0]["when-busy"] == "destructive"
    assert load_catalog([SHIPPED]).check_text(f"{name}.toml", snippet) == ()


def test_a_sleeping_llama_server_is_asked_only_what_does_not_wake_it() -> None:
    activity = load_catalog([SHIPPED]).definitions["llama-server"].activity
    assert activity is not None
    probe = activity.probes[0]
    assert (probe.first, probe.asleep_when, probe.get) == ("/props", "is_sleeping", "/slots")
    assert probe.sleep_flag == "--sleep-idle-seconds"


def test_what_is_shipped_spares_running_work_or_is_only_asked_of_those_known_to_rest() -> None:
    definitions = load_catalog([SHIPPED]).definitions.values()
    asked = {each.id: rung.when_busy for each in definitions for rung in each.release}
    assert asked == {
        "ollama": "deferred", "comfyui": "deferred", "lemonade": "deferred",
        "localai": "refused", "invokeai": "refused", "speaches": "refused",
        "llama-router": "destructive", "llama-swap": "destructive", "lm-studio": "destructive",
    }  # fmt: skip
    for each in definitions:
        if asked.get(each.id) == "destructive":
            assert each.activity is not None
            # Its processes' own word that they do not work, or half a minute of quiet of all that it has started;
            # where an event counts its requests, of a version without that event.
            quiet = next(probe for probe in each.activity.probes if not probe.worker_port_flag and not probe.event)
            assert (quiet.kind, quiet.idle_after) == ("sm-utilization", 30_000_000)


def test_no_shipped_definition_names_a_host_or_a_key() -> None:
    for each in load_catalog([SHIPPED]).definitions.values():
        if each.endpoint:
            assert each.endpoint.url.startswith("http://127.0.0.1:")
            assert each.endpoint.headers == ()
        assert all(rung.headers == () for rung in each.release)


def test_the_desktop_is_protected_and_matters_most() -> None:
    desktop = load_catalog([SHIPPED]).definitions["desktop"]
    assert desktop.protected
    assert desktop.priority == 100
    assert desktop.match.graphics_only


def test_same_name_merges_key_by_key_and_the_later_layer_wins(layers: Layers) -> None:
    (layers.usr / "app.toml").write_text(BASE)
    (layers.etc / "app.toml").write_text('priority = 60\nfloor = "1G"\n[match]\nexecutables = ["*/app"]\n')
    (layers.run / "app.json").write_text('{"priority": 70}')
    catalog = layers.load()
    assert catalog.problems == ()
    app = catalog.definitions["app"]
    assert (app.title, app.priority, app.floor) == ("App", 70, 1 << 30)
    assert (app.match.units, app.match.executables) == (("app.service",), ("*/app",))


def test_a_list_is_replaced_whole(layers: Layers) -> None:
    (layers.usr / "app.toml").write_text(BASE + '[[release]]\npost = "/free"\n')
    (layers.etc / "app.toml").write_text('release = []\n[match]\nunits = ["other.service"]\n')
    app = layers.load().definitions["app"]
    assert app.match.units == ("other.service",)
    assert app.release == ()


def test_a_later_probe_shorthand_replaces_the_probes_that_were_there(layers: Layers) -> None:
    (layers.usr / "app.toml").write_text(BASE + '[[activity.probes]]\nkind = "cpu"\n')
    (layers.etc / "app.toml").write_text('[activity]\nprobe = "vram"\n')
    activity = layers.load().definitions["app"].activity
    assert activity is not None
    assert [probe.kind for probe in activity.probes] == ["vram"]


@pytest.mark.parametrize("broken", ['priority = "high"', "nonsense", 'colour = "red"', "match = 3"])
def test_a_broken_file_leaves_earlier_layers_and_other_tenants_standing(layers: Layers, broken: str) -> None:
    (layers.usr / "app.toml").write_text(BASE)
    (layers.usr / "other.toml").write_text(BASE.replace("App", "Other"))
    (layers.etc / "app.toml").write_text(broken)
    (layers.run / "app.toml").write_text("priority = 70")
    catalog = layers.load()
    assert set(catalog.definitions) == {"app", "other"}
    assert catalog.definitions["app"].priority == 70, "only the broken layer is left out"
    assert {problem.file for problem in catalog.problems} == {str(layers.etc / "app.toml")}


def test_a_new_tenant_that_is_broken_is_just_not_there(layers: Layers) -> None:
    (layers.etc / "new.toml").write_text('title = "New"')
    catalog = layers.load()
    assert catalog.definitions == {}
    assert [problem.key for problem in catalog.problems] == ["match"]


def test_two_files_of_one_name_in_one_layer_are_an_error_and_neither_is_used(layers: Layers) -> None:
    (layers.usr / "app.toml").write_text(BASE)
    (layers.etc / "app.toml").write_text("priority = 60")
    (layers.etc / "app.json").write_text('{"priority": 70}')
    catalog = layers.load()
    assert catalog.definitions["app"].priority == 50
    assert "app.json and app.toml are both there" in catalog.problems[0].message


@pytest.mark.parametrize("how", ["empty", "null"])
def test_a_mask_hides_what_earlier_layers_said(layers: Layers, how: str) -> None:
    (layers.usr / "app.toml").write_text(BASE)
    mask = layers.etc / "app.toml"
    if how == "empty":
        mask.touch()
    else:
        mask.symlink_to("/dev/null")
    catalog = layers.load()
    assert catalog.definitions == {}
    assert catalog.problems == ()
    (layers.run / "app.toml").write_text(BASE.replace("50", "51"))
    assert layers.load().definitions["app"].priority == 51, "a later layer begins anew"


def test_what_cannot_be_read_is_a_problem_and_a_missing_folder_is_none(layers: Layers, tmp_path: Path) -> None:
    (layers.usr / "dir.toml").mkdir()
    (layers.usr / "a b.toml").write_text(BASE)
    (tmp_path / "file").touch()
    catalog = load_catalog([layers.usr, tmp_path / "missing", tmp_path / "file"])
    texts = [str(problem) for problem in catalog.problems]
    assert len(texts) == 3
    assert any("not a regular file" in text for text in texts)
    assert any("letters, digits" in text for text in texts)
    assert any("folder cannot be read" in text for text in texts)


def test_other_files_in_the_folder_are_left_alone(layers: Layers) -> None:
    for name in ("README", "app.toml.example", "app.toml~", ".app.toml.swp", ".hidden.toml"):
        (layers.etc / name).write_text("nonsense")
    catalog = layers.load()
    assert (catalog.problems, catalog.definitions) == ((), {})


def test_an_instance_is_its_base_with_its_own_file_laid_over(layers: Layers) -> None:
    (layers.usr / "app.toml").write_text("per-instance = true\n" + BASE)
    (layers.etc / "app@8189.toml").write_text("priority = 20")
    catalog = layers.load()
    assert set(catalog.definitions) == {"app"}
    own, other = catalog.resolve("app@8189"), catalog.resolve("app@gpu1")
    assert (own.id, own.title, own.priority) == ("app@8189", "App (8189)", 20)
    assert own.endpoint is not None
    assert own.endpoint.url == "http://127.0.0.1:8189", "a label that is a port is the endpoint's"
    assert (other.id, other.title, other.priority) == ("app@gpu1", "App (gpu1)", 50)
    assert other.endpoint is not None
    assert other.endpoint.url == "http://127.0.0.1:9000"


def test_an_instance_file_cannot_say_how_it_is_recognised(layers: Layers) -> None:
    (layers.usr / "app.toml").write_text("per-instance = true\n" + BASE)
    (layers.etc / "app@1.toml").write_text('priority = 20\n[match]\nunits = ["x.service"]')
    (layers.etc / "none@1.toml").write_text("priority = 20")
    catalog = layers.load()
    assert catalog.instances == {}
    assert {(Path(problem.file).name, problem.key) for problem in catalog.problems} == {
        ("app@1.toml", "match"),
        ("none@1.toml", ""),
    }


@pytest.mark.parametrize("tenant_id", ["nobody", "app@1", "app@", "", "app@x y"])
def test_who_is_not_defined_cannot_be_resolved_or_explained(layers: Layers, tenant_id: str) -> None:
    (layers.usr / "app.toml").write_text(BASE)
    catalog = layers.load()
    with pytest.raises(NoSuchTenant, match=r"There are: app|do you mean app"):
        catalog.resolve(tenant_id)
    with pytest.raises(NoSuchTenant):
        catalog.explain(tenant_id)


def test_explain_gives_the_source_of_every_value_and_reads_back(layers: Layers) -> None:
    (layers.usr / "app.toml").write_text(
        BASE + '[[release]]\npost = "/a"\njson = { "odd key" = ["\\u007f\\"", 1.5, true, {}] }\n'
    )
    (layers.etc / "app.json").write_text('{"priority": 60, "match": {"comms": ["app"]}}')
    text = layers.load().explain("app")
    assert f"priority = 60  # from {layers.etc}/app.json" in text
    assert f'units = ["app.service"]  # from {layers.usr}/app.toml' in text
    assert f'comms = ["app"]  # from {layers.etc}/app.json' in text
    for line in text.splitlines():
        assert " = " not in line or "  # from " in line
    read = tomllib.loads(text)
    assert read["priority"] == 60
    assert read["release"] == [{"post": "/a", "json": {"odd key": ['\x7f"', 1.5, True, {}]}}]


def test_explain_of_an_instance_shows_its_base_and_its_own_file(layers: Layers) -> None:
    (layers.usr / "app.toml").write_text("per-instance = true\n" + BASE)
    (layers.etc / "app@8189.toml").write_text("priority = 20")
    catalog = layers.load()
    assert f"priority = 20  # from {layers.etc}/app@8189.toml" in catalog.explain("app@8189")
    assert catalog.explain("app@gpu1").startswith("# app@gpu1: instance gpu1 of app\n")


def test_a_text_is_checked_as_if_it_were_laid_over_what_is_there(layers: Layers) -> None:
    (layers.usr / "app.toml").write_text("per-instance = true\n" + BASE)
    catalog = layers.load()
    assert catalog.check_text("app.toml", "priority = 60") == ()
    assert catalog.check_text("app@1.toml", "priority = 60") == ()
    assert catalog.check_text("app.json", '{"priority": 60}') == ()
    assert {problem.key for problem in catalog.check_text("new.toml", "priority = 60")} == {"title", "match"}
    assert str(catalog.check_text("app.toml", "priority = 600")[0]).startswith("app.toml: priority: is 600")
    assert "is not TOML" in str(catalog.check_text("app.toml", "{")[0])


def test_a_shipped_url_gives_way_to_where_the_process_listens_and_one_that_somebody_wrote_does_not(
    tmp_path: Path,
) -> None:
    shipped = load_catalog([SHIPPED]).definitions["ollama"]
    assert shipped.endpoint is not None
    assert (shipped.endpoint_is_usual, shipped.endpoint.host_variable) == (True, "OLLAMA_HOST")

    (tmp_path / "ollama.toml").write_text('[endpoint]\nurl = "http://127.0.0.1:9000"\n')
    chosen = load_catalog([SHIPPED, tmp_path]).definitions["ollama"]
    assert chosen.endpoint is not None
    assert (chosen.endpoint_is_usual, chosen.endpoint.host_variable) == (False, "")

    (tmp_path / "ollama.toml").write_text('[endpoint]\nurl = "http://127.0.0.1:9000"\nhost-variable = "MY_HOST"\n')
    both = load_catalog([SHIPPED, tmp_path]).definitions["ollama"]
    assert both.endpoint is not None
    assert (both.endpoint_is_usual, both.endpoint.host_variable) == (False, "MY_HOST")

    (tmp_path / "ollama.toml").write_text("priority = 60\n")
    assert load_catalog([SHIPPED, tmp_path]).definitions["ollama"].endpoint_is_usual


def test_of_very_many_files_only_the_first_are_read_and_that_is_said(
    layers: Layers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_module, "MOST_FILES", 10)
    for number in range(100, 130):
        (layers.usr / f"app{number}.toml").write_text(BASE)
    catalog = layers.load()
    assert sorted(catalog.definitions) == [f"app{number}" for number in range(100, 110)]
    (problem,) = catalog.problems
    assert str(problem) == f"{layers.usr}: there are files of 30 tenants: only the first 10 by name are read"
