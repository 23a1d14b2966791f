"""Program text of engines, out of wheels that are downloaded once, into build/, and not installed."""

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

WHEELS = Path(__file__).parents[2] / "build" / "engine-sources"
PATIENCE = 60.0
"""Seconds that a download may take."""


@functools.cache
def wheel_of(package: str, version: str) -> Path:
    """The wheel of this version. Skips the test, with the reason, when it cannot be had here."""
    pattern = f"{package}-{version}-*.whl"
    if not (found := sorted(WHEELS.glob(pattern))):
        arguments = ("download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version=3.11", "--dest")
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pip", *arguments, str(WHEELS), f"{package}=={version}"],
                capture_output=True, text=True, timeout=PATIENCE,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            pytest.skip(f"{package} {version} was not downloaded within {PATIENCE:.0f} s")
        if not (found := sorted(WHEELS.glob(pattern))):
            pytest.skip(f"{package} {version} cannot be downloaded: {done.stderr.strip()[-300:]}")
    return found[0]


@functools.cache
def names_in(wheel: Path, *places: str) -> frozenset[str]:
    """Every text in the Python files below these places, and the names of the fields of their classes."""
    names: set[str] = set()
    with ZipFile(wheel) as package:
        files = [name for name in package.namelist() if name.startswith(places) and name.endswith(".py")]
        assert files, f"none of {places} is in {wheel}"
        for file in files:
            names.update(_names(ast.parse(package.read(file))))
    return frozenset(names)


def _names(program: ast.Module) -> Iterator[str]:
    for node in ast.walk(program):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
