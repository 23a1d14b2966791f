"""What in tenant files is allowed and hardly meant is pointed out, with what was likely meant."""

from pathlib import Path

import pytest

from gpusupervisor.health.configuration import check_hints
from gpusupervisor.tenants.catalog import SHIPPED, load_catalog
from gpusupervisor.tenants.examine import problems

MINE = 'title = "Mine"\n[match]\n'


def hints(folder: Path, name: str, text: str) -> list[str]:
    (folder / name).write_text(text)
    return [str(hint).removeprefix(f"{folder}/") for hint in load_catalog([SHIPPED, folder]).hints]


def test_shipped_definitions_have_none() -> None:
    assert load_catalog([SHIPPED]).hints == ()


@pytest.mark.parametrize(
    ("match", "meant"),
    [
        ('units = ["olama"]', "olama.service"),
        ('user-units = ["my-tts"]', "my-tts.service"),
        ('units = ["my-tts.socket"]', "my-tts.service"),
        ('units = ["my*-tts"]', "my*-tts.service"),
        ('executables = ["my-tts"]', "*/my-tts"),
        ('executables = ["bin/my-tts"]', "*/bin/my-tts"),
        ('comms = ["my-very-long-tts-server"]', "my-very-long-tt"),
    ],
)
def test_a_pattern_that_never_matches_is_named_with_its_likely_meaning(tmp_path: Path, match: str, meant: str) -> None:
    [hint] = hints(tmp_path, "mine.toml", MINE + match)
    assert hint.startswith("mine.toml: match.")
    assert f'is "{meant}" meant?' in hint


@pytest.mark.parametrize(
    "match",
    [
        'units = ["my-tts.service", "my-tts*", "my-tts@*.service", "run-*.scope", "my-tts.*"]',
        'units = ["my-tts.servic[e]"]',
        'executables = ["/opt/my-tts", "*/my-tts", "[/]opt/my-tts"]',
        'comms = ["my-tts*", "MINE::EngineCor"]\nexecutables = ["*/my-tts"]',
    ],
)
def test_a_pattern_that_can_match_is_not(tmp_path: Path, match: str) -> None:
    assert hints(tmp_path, "mine.toml", MINE + match) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("confyui.toml", "confyui.toml: describes a new tenant: to change the shipped comfyui, it has to be called "
         "comfyui.toml"),
        ("comfyui.conf", "comfyui.conf: is not read: tenant files end in .toml or .json; is comfyui.toml meant?"),
        ("comfyui", "comfyui: is not read: tenant files end in .toml or .json; is comfyui.toml meant?"),
        ("tts.toml.txt", "tts.toml.txt: is not read: tenant files end in .toml or .json; is tts.toml meant?"),
        ("comfyui.yaml", "comfyui.yaml: is not read: tenant files end in .toml or .json; is comfyui.toml meant?"),
    ],
)  # fmt: skip
def test_a_file_that_was_meant_to_have_another_name_is_pointed_out(tmp_path: Path, name: str, said: str) -> None:
    assert hints(tmp_path, name, "priority = 70\n") == [said]


@pytest.mark.parametrize(
    "name", ["comfyui.toml~", "comfyui.toml.bak", "comfyui.toml.dpkg-old", ".comfyui.toml.swp", "README", "README.md"]
)
def test_what_editors_and_package_managers_leave_behind_is_not(tmp_path: Path, name: str) -> None:
    assert hints(tmp_path, name, "priority = 70\n") == []


def test_overriding_a_shipped_tenant_or_being_quite_another_is_none(tmp_path: Path) -> None:
    assert hints(tmp_path, "comfyui.toml", "priority = 70\n") == []
    assert hints(tmp_path, "comfyui-video.toml", MINE + 'units = ["video-only.service"]') == []


def test_a_file_of_ones_own_that_takes_over_a_shipped_tenants_processes_says_so(tmp_path: Path) -> None:
    [hint] = hints(tmp_path, "mine.toml", MINE + 'executables = ["/usr/local/bin/ollama"]')
    assert (
        hint
        == 'mine.toml: match.executables: "/usr/local/bin/ollama" also fits processes of ollama: they count as mine'
    )
    [check] = check_hints(load_catalog([SHIPPED, tmp_path]).hints)
    assert (check.id, check.state) == ("configuration-hint-1", "skipped")


def test_two_tenants_that_claim_one_process_are_a_fault(tmp_path: Path) -> None:
    (tmp_path / "first.toml").write_text(MINE + 'units = ["my-tts.service"]')
    (tmp_path / "second.toml").write_text(MINE + 'units = ["my-tts.service"]')
    [check] = check_hints(load_catalog([SHIPPED, tmp_path]).hints)
    assert check.state == "degraded"
    assert '"my-tts.service" also fits processes of second: they count as first' in check.summary


def test_a_file_that_is_only_checked_hears_the_same(tmp_path: Path) -> None:
    (tmp_path / "first.toml").write_text(MINE + 'units = ["my-tts.service"]')
    found = problems("second.toml", MINE + 'units = ["my-tts.service", "tts"]', [SHIPPED, tmp_path])
    assert len(found) == 2
    assert '"tts" never matches' in found[0]
    assert "they count as first" in found[1]
    assert problems("comfyui.toml", "priority = 70\n", [SHIPPED, tmp_path]) == []
