"""Where an engine's unit says that its models are. Pure."""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """One way of saying it."""

    variable: str = ""
    flag: str = ""
    below: str = ""
    """Folder below the one that is named."""
    names_a_file: bool = False
    """It names a model; what is meant is its folder."""


_HUB = (Source("HF_HUB_CACHE"), Source("HF_HOME", below="hub"))
SOURCES: Mapping[str, tuple[Source, ...]] = {
    "ollama": (Source("OLLAMA_MODELS"),),
    "comfyui": (Source(flag="--models-directory"), Source(flag="--base-directory", below="models")),
    "llama.cpp": (
        Source(flag="--models-dir"),
        Source("LLAMA_ARG_MODELS_DIR"),
        Source(flag="--model", names_a_file=True),
        Source(flag="-m", names_a_file=True),
        Source("LLAMA_ARG_MODEL", names_a_file=True),
        Source("LLAMA_CACHE"),
    ),
    "vllm": (Source(flag="--download-dir"), *_HUB),
    "sglang": (Source(flag="--download-dir"), *_HUB),
    "localai": (Source(flag="--models-path"), Source("LOCALAI_MODELS_PATH"), Source("MODELS_PATH")),
    "automatic1111": (Source(flag="--models-dir"), Source(flag="--data-dir", below="models")),
    "invokeai": (
        Source("INVOKEAI_MODELS_DIR"),
        Source(flag="--root", below="models"),
        Source("INVOKEAI_ROOT", below="models"),
    ),
    "tabbyapi": (Source(flag="--model-dir"), Source("TABBY_MODEL_MODEL_DIR")),
    "koboldcpp": (Source(flag="--model", names_a_file=True), Source(flag="-m", names_a_file=True)),
    "text-generation-webui": (Source(flag="--model-dir"), Source(flag="--user-data-dir", below="models")),
    "speaches": _HUB,
    "whisper.cpp": (Source(flag="--model", names_a_file=True), Source(flag="-m", names_a_file=True)),
}
"""By engine, in the order in which they are heard."""


def folder_of(engine: str, command_line: Sequence[str], environment: Mapping[str, str]) -> tuple[str, str]:
    """The folder, and which setting says so; both empty when none does. Only a plain absolute path is one."""
    for source in SOURCES.get(engine, ()):
        said = environment.get(source.variable, "") if source.variable else _value(source.flag, command_line)
        if said.startswith("/"):
            path = posixpath.join(posixpath.dirname(said) if source.names_a_file else said, source.below)
            folder = posixpath.normpath(path).replace("//", "/")
            if folder != "/":
                return folder, source.variable or source.flag
    return "", ""


def covers(directories: Sequence[str], folder: str) -> bool:
    """Whether the folder is one of them or below one."""
    return any(folder == each or folder.startswith(f"{each}/") for each in directories)


def _value(flag: str, command_line: Sequence[str]) -> str:
    """The value of a flag, the last one; empty when it is not there."""
    found = ""
    for index, argument in enumerate(command_line):
        name, equals, value = argument.partition("=")
        if name == flag:
            found = value if equals else "".join(command_line[index + 1 : index + 2])
    return found
