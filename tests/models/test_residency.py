"""Which files a model has, by what its engine calls it and by the path that its engine names."""

import pytest

from gpusupervisor.models.residency import ModelResidency, find_files, residency_of

FOLDERS = ("/srv/models", "/var/lib/llama.cpp/")
KNOWN = residency_of(
    [ModelResidency(name, 100, 50) for name in ("a/small.gguf", "big.gguf", "b/small.gguf")], "cachestat", (), 0
)


@pytest.mark.parametrize(
    ("name", "file", "found"),
    [
        ("my-alias", "/srv/models/a/small.gguf", "a/small.gguf"),
        ("my-alias", "/srv/models/a/../b/small.gguf", "b/small.gguf"),
        ("my-alias", "/var/lib/llama.cpp/big-00001-of-00003.gguf", "big.gguf"),
        ("big", "", "big.gguf"),
        ("big", "/models/container/other.gguf", "big.gguf"),
        ("my-alias", "/home/user/big.gguf", None),
        ("my-alias", "/srv/models/../home/big.gguf", None),
        ("my-alias", "/srv/models/gone.gguf", None),
        ("my-alias", "/srv/models", None),
        ("small", "", None),
    ],
)
def test_a_path_chooses_among_the_files_that_were_found_and_nothing_else(
    name: str, file: str, found: str | None
) -> None:
    files = find_files(KNOWN, FOLDERS, name, file)
    assert (files.name if files else None) == found
