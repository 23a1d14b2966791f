"""What a process is called, and where its script is."""

import pytest

from gpusupervisor.processes.identity import ProcessIdentity, ProcessKey


def identity(command_line: str, folder: str = "/opt/app", executable: str = "") -> ProcessIdentity:
    return ProcessIdentity(
        ProcessKey(7, 70), 1, 1000, "comm", executable=executable, command_line=tuple(command_line.split()),
        working_directory=folder,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "placed"),
    [
        ("python main.py --port 1", "python /opt/app/main.py --port 1"),
        ("python3 -u -W ignore -X dev ./main.py", "python3 -u -W ignore -X dev /opt/app/main.py"),
        ("venv/bin/python ../other/main.py", "venv/bin/python /opt/other/main.py"),
        ("python /srv/main.py", "python /srv/main.py"),
        ("node server.js", "node /opt/app/server.js"),
        ("python -m app main.py", "python -m app main.py"),
        ("python -c code main.py", "python -c code main.py"),
        ("python -u", "python -u"),
        ("llama-server model.gguf", "llama-server model.gguf"),
        ("", ""),
    ],
)
def test_an_interpreters_script_is_placed_in_its_folder(typed: str, placed: str) -> None:
    assert " ".join(identity(typed).placed_command_line) == placed


def test_nothing_is_placed_where_the_folder_is_hidden() -> None:
    assert identity("python main.py", folder="").placed_command_line == ("python", "main.py")


@pytest.mark.parametrize(
    ("command_line", "executable", "name"),
    [
        ("python -u main.py", "/usr/bin/python3.11", "python3.11 main.py"),
        ("python -u -m comfy x", "/usr/bin/python3.11", "python3.11 -m comfy"),
        ("renamed main.py", "/usr/bin/python3.11", "python3.11 main.py"),
        ("/opt/blender -b x.blend", "", "blender"),
        ("", "", "comm"),
    ],
)
def test_it_is_called_by_what_it_runs(command_line: str, executable: str, name: str) -> None:
    assert identity(command_line, executable=executable).name == name


STEAM = "/home/u/.steam/steamapps/common"


@pytest.mark.parametrize(
    ("argv", "executable", "user_unit", "name"),
    [
        (["VLLM::EngineCore"], "/usr/bin/python3.12", "", "VLLM::EngineCore"),
        (["sglang::scheduler_TP0", ""], "/usr/bin/python3.12", "", "sglang::scheduler_TP0"),
        (["gunicorn: worker [app]"], "/usr/bin/python3.12", "", "gunicorn: worker [app]"),
        (["python3", "-c", "x"], "/usr/bin/python3.12", "", "python3.12"),
        (["python3", "-c", "x"], "/usr/bin/python3.12", "stt.service", "python3.12 (stt)"),
        (["python3"], "/usr/bin/python3.12", "app-org.kde.konsole-71.scope", "python3.12 (org.kde.konsole)"),
        (["Z:\\games\\Elder.exe", "-dx12"], "/opt/wine/bin/wine64-preloader", "", "Elder"),
        (["/opt/wine64-preloader", "/opt/wine64", "C:\\x\\Elder.EXE"], "/opt/wine64-preloader", "", "Elder"),
        (
            ["Z:" + STEAM.replace("/", "\\") + "\\Deep Rock\\bin\\FSD.exe"],
            f"{STEAM}/Proton 9.0/files/bin/wine64-preloader",
            "",
            "Deep Rock",
        ),
        ([f"{STEAM}/Factorio/bin/x64/factorio"], f"{STEAM}/Factorio/bin/x64/factorio", "", "Factorio"),
        (["wine"], "/opt/wine/wine64-preloader", "app-steam-app1091500-77.scope", "Steam app 1091500"),
        (["./hl2"], "/srv/hl2", "app-steam-app220-77.scope", "Steam app 220 (hl2)"),
        (["/app/electron"], "/app/electron", "app-flatpak-md.obsidian.Obsidian-12.scope", "md.obsidian.Obsidian"),
        (["bwrap"], "/usr/bin/bwrap", "app-flatpak-org.x\\x2dy-12.scope", "org.x-y"),
        (["electron"], "/usr/lib/electron30/electron", "snap.code.code-1.scope", "code"),
        (["AppRun"], "/tmp/.mount/AppRun", "app-gnome-Cura@1.service", "Cura"),
        (["/opt/blender"], "/opt/blender", "app-org.blender-1.scope", "blender"),
        (["wine"], "/usr/bin/wine64", "", "wine64"),
    ],
)
def test_it_is_called_what_a_person_knows(argv: list[str], executable: str, user_unit: str, name: str) -> None:
    who = ProcessIdentity(
        ProcessKey(7, 70), 1, 1000, "comm", executable=executable, command_line=tuple(argv), user_unit=user_unit
    )
    assert who.name == name


@pytest.mark.parametrize(
    ("command_line", "arguments"),
    [
        ("/usr/bin/llama-server -m x --port 1", "-m x --port 1"),
        ("python -u main.py --port 1", "--port 1"),
        ("python3 -X utf8 -m app main.py", "main.py"),
        ("python -c code main.py", "-c code main.py"),
        ("ssh -m hmac box", "-m hmac box"),
        ("python -m", ""),
        ("python", ""),
        ("", ""),
    ],
)
def test_its_arguments_are_those_of_what_an_interpreter_runs(command_line: str, arguments: str) -> None:
    assert " ".join(identity(command_line).arguments) == arguments
