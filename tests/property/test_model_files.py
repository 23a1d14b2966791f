"""Whatever lies in a model directory comes out as models or as named problems, never as another error."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusupervisor.models.load_speed import LoadSpeeds, MeasuredLoad, estimate, measured_speed
from gpusupervisor.models.residency import ModelResidency, find, residency_of
from gpusupervisor.models.warm_plan import Candidate, Usage, plan_warming, room_for
from gpusupervisor.reader.page_cache import layout

digests = st.text("0123456789abcdef", min_size=64, max_size=64)
anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["layers", "config", "digest", "size", "x"]), inner)
    ),
)
steps = st.text("abcXYZ019._- ", min_size=1, max_size=12).filter(lambda step: step.strip(". ") == step)
paths = st.lists(steps, min_size=1, max_size=5).map("/".join)
sizes = st.integers(0, 1 << 40)


@given(st.binary(max_size=500) | anything.map(lambda value: json.dumps(value).encode()))
def test_a_manifest_is_a_list_of_blobs_or_a_named_problem(content: bytes) -> None:
    blobs: tuple[str, ...] = ()
    with suppress(layout.BrokenManifest):
        blobs = layout.blobs_of_manifest(content)
        assert blobs
    assert all("/" not in blob and blob.startswith("sha256-") for blob in blobs)


@given(st.lists(digests, min_size=1, max_size=20), digests, st.sampled_from(":-"))
def test_every_layer_and_the_config_are_files_of_the_model_once(found: list[str], config: str, mark: str) -> None:
    layers = [{"digest": f"sha256{mark}{digest}"} for digest in found]
    blobs = layout.blobs_of_manifest(json.dumps({"layers": layers, "config": {"digest": f"sha256:{config}"}}).encode())
    assert set(blobs) == {f"sha256-{digest}" for digest in (*found, config)}
    assert len(set(blobs)) == len(blobs)


@given(st.text(max_size=80))
def test_a_manifests_path_is_a_name_or_none(path: str) -> None:
    name = layout.name_of_manifest(path)
    assert (name is None) or (path.count("/") == 3 and name.count(":") >= 1)


@given(st.lists(paths, unique=True, max_size=30))
def test_every_file_of_weights_is_in_exactly_one_model(files: list[str]) -> None:
    models = layout.models_of_weights([f"{file}.gguf" for file in files])
    assert sorted(file for model in models for file in model.files) == sorted(f"{file}.gguf" for file in files)
    assert len({model.name for model in models}) == len(models)


@given(paths, st.integers(1, 40), st.sampled_from([".gguf", ".safetensors"]))
def test_shards_are_one_model_that_is_called_as_a_whole_one_is(path: str, count: int, ending: str) -> None:
    shards = [f"{path}-{number:05}-of-{count:05}{ending}" for number in range(1, count + 1)]
    [model] = layout.models_of_weights(shards)
    assert model.name == layout.name_of_weights(path + ending)


@given(st.text(max_size=300))
def test_what_can_be_named_is_shown_as_it_is(name: str) -> None:
    if layout.can_be_named(name):
        assert name.isprintable()
        assert len(name) <= layout.LONGEST_NAME
        name.encode()


residencies = st.lists(paths, unique=True, max_size=12).map(
    lambda names: residency_of([ModelResidency(name, 1, 1) for name in names], "cachestat", (), 0)
)


@given(residencies, paths)
def test_a_model_is_found_by_its_own_name_and_never_taken_for_one_of_several(residency: Any, asked: str) -> None:
    for name in residency.models:
        assert find(residency, name) is residency.models[name]
    found = find(residency, asked)
    if found is not None and found.name != asked and not asked.endswith(f"/{found.name}"):
        alike = [name for name in residency.models if name.endswith(f"/{asked}")]
        assert len(alike) <= 1


loads = st.builds(MeasuredLoad, sizes, sizes, st.integers(-5, 10**10))


@given(st.lists(loads, max_size=40), sizes, sizes)
def test_an_estimate_is_a_time_or_none_whatever_was_measured(
    measured: list[MeasuredLoad], size: int, cached: int
) -> None:
    speeds = LoadSpeeds()
    for load in measured:
        kind, speed = measured_speed(speeds, load) or ("", 0)
        cold, warm = ((speed,) if kind == each else () for each in ("cold", "warm"))
        speeds = LoadSpeeds((*speeds.cold, *cold), (*speeds.warm, *warm))
    assert all(speed > 0 for speed in (*speeds.cold, *speeds.warm))
    expected = estimate(speeds, size, cached)
    if expected is None:
        assert not (speeds.cold and speeds.warm)
    else:
        assert expected.took >= 0
        assert str(expected).startswith("from ")


candidates = st.lists(
    st.builds(
        Candidate,
        st.sampled_from(["a", "b"]),
        st.builds(ModelResidency, paths, sizes, st.none() | st.just(0) | sizes),
        st.none() | st.builds(Usage, sizes, st.integers(1, 9)),
    ),
    max_size=20,
)


@given(candidates, st.none() | sizes, st.booleans())
def test_a_plan_judges_each_once_and_never_fills_more_than_there_is(
    found: list[Candidate], spare: int | None, shared: bool
) -> None:
    plan = plan_warming(found, spare, shared=shared)
    assert len(plan) == len(found)
    wanted = [step for step in plan if step.verdict == "worth-it"]
    assert sum(room_for(step.model.size, shared=shared) for step in wanted) <= (spare or 0)
    assert all(step.reason for step in plan)
    assert all((step.verdict == "unknown") == (step.model.cached is None) for step in plan)


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("sd_xl.safetensors", "checkpoints/sd_xl.safetensors"),
        ("sd_xl", "checkpoints/sd_xl.safetensors"),
        ("/srv/models/chat/q.gguf", "chat/q.gguf"),
        ("qwen3", "qwen3:latest"),
        ("qwen3:latest", "qwen3:latest"),
        ("llama3.2:1b", "llama3.2:1b"),
        ("llama3", None),
        ("same", None),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("", None),
    ],
)
def test_an_engines_name_for_a_model_finds_its_files(asked: str, name: str | None) -> None:
    names = ("checkpoints/sd_xl.safetensors", "chat/q.gguf", "qwen3:latest", "llama3.2:1b", "a/same.gguf",
             "b/same.gguf", "Qwen/Qwen3-8B")  # fmt: skip
    residency = residency_of([ModelResidency(each, 1, 1) for each in names], "cachestat", (), 0)
    found = find(residency, asked)
    assert (found and found.name) == name
