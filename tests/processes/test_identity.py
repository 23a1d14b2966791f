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
