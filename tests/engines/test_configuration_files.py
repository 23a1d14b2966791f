"""Configuration files of engines: which are read, and what they are beside flags and variables."""

from dataclasses import replace

import pytest

from gpusupervisor.engines.configuration_files import KEYS, sources_of
from gpusupervisor.engines.tables import TABLES
from gpusupervisor.processes.settings_files import SettingsFile
from tests.engines.builders import api, process, reading

HOME = {"HOME": "/home/a"}
USERS = "/home/a/.config/llama.cpp/config.ini"
SYSTEM = "/etc/llama.cpp/config.ini"


def test_the_keys_that_may_be_read_are_those_of_the_tables() -> None:
    assert {engine: table.file_keys() for engine, table in TABLES.items() if table.file_keys()} == KEYS


@pytest.mark.parametrize(
    ("line", "folder", "places", "paths"),
    [
        ("/usr/bin/llama-server -m x", "/", HOME, [SYSTEM, USERS]),
        ("llama serve", "/", {"XDG_CONFIG_HOME": "/x", **HOME}, [SYSTEM, "/x/llama.cpp/config.ini"]),
        ("llama-server-cuda", "/", {}, [SYSTEM]),
        ("llama-swap -config /etc/swap.yaml", "/", {}, ["/etc/swap.yaml"]),
        ("llama-swap", "/srv", {}, ["/srv/config.yaml"]),
        ("python koboldcpp.py --config a.kcpps", "/opt/k", {}, ["/opt/k/a.kcpps"]),
        ("python koboldcpp.py --model a", "/opt/k", {}, []),
        ("/opt/venv/bin/invokeai-web", "/", {"INVOKEAI_ROOT": "/srv/i"}, ["/srv/i/invokeai.yaml"]),
        ("python /opt/venv/bin/invokeai-web --root /r", "/", {}, ["/r/invokeai.yaml"]),
        ("python main.py", "/opt/tabbyAPI", {}, ["/opt/tabbyAPI/config.yml"]),
        ("python main.py", "/opt/ComfyUI", {}, []),
        ("ollama serve", "/", HOME, []),
    ],
)
def test_which_files_a_server_reads(line: str, folder: str, places: dict[str, str], paths: list[str]) -> None:
    assert [source.path for source in sources_of(line.split(), folder, places)] == paths


def sleeps(line: str, *files: SettingsFile) -> tuple[str, str]:
    running = replace(process(line), configuration=files)
    told = {each.name: each for each in reading("llama.cpp", running, None, api("", {"sleeping": "false"})).settings}
    found = told.get("--sleep-idle-seconds")
    return (found.value, found.source) if found else ("", "")


def test_a_flag_beats_the_users_file_which_beats_the_systems() -> None:
    system = SettingsFile(SYSTEM, values=(("sleep-idle-seconds", "60"),))
    users = SettingsFile(USERS, values=(("sleep-idle-seconds", "90"),))
    assert sleeps("llama-server", system) == ("60", SYSTEM)
    assert sleeps("llama-server", system, users) == ("90", USERS)
    assert sleeps("llama-server --sleep-idle-seconds 5", system, users) == ("5", "command line")
    assert sleeps("llama-server") == ("-1", "default")


def test_no_default_is_told_while_a_file_is_unread() -> None:
    unread = SettingsFile(USERS, readable=False)
    assert sleeps("llama-server", unread) == ("", "")
    assert reading("llama.cpp", replace(process("llama-server"), configuration=(unread,))).hidden == (USERS,)


@pytest.mark.parametrize(
    ("engine", "key", "value", "name", "shown"),
    [
        ("llama.cpp", "slots", "false", "--no-slots", ""),
        ("llama.cpp", "no-slots", "true", "--no-slots", ""),
        ("llama.cpp", "LLAMA_ARG_CTX_SIZE", "8192", "--ctx-size", "8192"),
        ("llama.cpp", "c", "8192", "--ctx-size", "8192"),
        ("tabbyapi", "model.cache_size", "8192", "--cache-size", "8192"),
        ("invokeai", "max_cache_vram_gb", "4", "max_cache_vram_gb", "4"),
        ("koboldcpp", "gpulayers", "-1", "--gpulayers", "-1"),
        ("llama-swap", "models.*.ttl", "60 0", "ttl", "60 0"),
    ],
)
def test_what_files_set(engine: str, key: str, value: str, name: str, shown: str) -> None:
    running = replace(process(), configuration=(SettingsFile("/f", values=((key, value),)),))
    found = {each.name: each for each in reading(engine, running).settings}
    assert (found[name].value, found[name].source) == (shown, "/f")
    assert found[name].meaning


def test_koboldcpps_file_beats_its_command_line() -> None:
    running = process("koboldcpp --gpulayers 5 --config /f")
    running = replace(running, configuration=(SettingsFile("/f", values=(("gpulayers", "9"),)),))
    found = {each.name: each for each in reading("koboldcpp", running).settings}
    assert (found["--gpulayers"].value, found["--gpulayers"].source) == ("9", "/f")
