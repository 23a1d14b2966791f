"""Which files make which model, by the names that engines use. Pure: what is found in a directory goes in.

Ollama names a model by the path of its manifest, which lists its blobs (ollama, types/model/name.go and
manifest/manifest.go). Everybody else names weights by their file, a shard by the file without its number, and a
repository in the cache of the Hugging Face Hub by its owner and name (huggingface_hub, file_download.py).
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpusupervisor.foreign_text import harmless

MOST_LAYERS = 256
"""Of one manifest."""
LONGEST_NAME = 256
SUFFIXES = (".gguf", ".safetensors", ".ckpt", ".pt", ".pth", ".bin", ".onnx", ".sft")
MANIFESTS = "manifests/"
BLOBS = "blobs/"

_SHARD = re.compile(r"-[0-9]{5}-of-[0-9]{5}(?=\.[a-z]+$)", re.ASCII)
_REPOSITORY = re.compile(r"(?:.*/)?models--([^/]+)/snapshots/[^/]+/(.+)")
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})", re.ASCII)
_DEFAULT_HOST = "registry.ollama.ai"
_DEFAULT_OWNER = "library"


class BrokenManifest(ValueError):  # noqa: N818  (it names a state)
    """A manifest that does not name the files of a model; the text says why."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """One model, by the paths of its files below its directory."""

    name: str
    files: tuple[str, ...]
    problem: str = ""
    """Why its files are not known, or not all of them."""


def weights(path: str) -> bool:
    """Whether a file is one of weights, by its name."""
    return path.lower().endswith(SUFFIXES)


def name_of_weights(path: str) -> str:
    """The model that a file of weights is of: shards are one, and so is a repository without GGUF files."""
    whole = _SHARD.sub("", path)
    in_hub = _REPOSITORY.fullmatch(whole)
    if in_hub is None:
        return whole
    repository = in_hub[1].replace("--", "/")
    return f"{repository}/{in_hub[2]}" if whole.lower().endswith(".gguf") else repository


def models_of_weights(paths: Sequence[str]) -> list[ModelFiles]:
    """The models that files of weights make, by name."""
    found: dict[str, list[str]] = {}
    for path in sorted(paths):
        found.setdefault(name_of_weights(path), []).append(path)
    return [ModelFiles(name, tuple(files)) for name, files in found.items()]


def name_of_manifest(path: str) -> str | None:
    """The model of a manifest by its path below `manifests/`, as Ollama's API gives it; None when it is none."""
    parts = path.split("/")
    if len(parts) != 4 or not all(parts):
        return None
    host, owner, model, tag = parts
    if host != _DEFAULT_HOST:
        return f"{host}/{owner}/{model}:{tag}"
    return f"{model}:{tag}" if owner == _DEFAULT_OWNER else f"{owner}/{model}:{tag}"


def blobs_of_manifest(content: bytes) -> tuple[str, ...]:
    """The names of the blobs that a manifest lists. Raises BrokenManifest."""
    try:
        manifest: object = json.loads(content)
    except (ValueError, RecursionError):
        raise BrokenManifest("its manifest is not JSON") from None
    layers = manifest.get("layers") if isinstance(manifest, dict) else None
    if not isinstance(manifest, dict) or not isinstance(layers, list) or not layers:
        raise BrokenManifest("its manifest lists no layers")
    if len(layers) > MOST_LAYERS:
        raise BrokenManifest(f"its manifest lists more than {MOST_LAYERS} layers")
    config = manifest.get("config")
    return tuple(dict.fromkeys(_blob(each) for each in [*layers, *([config] if config else [])]))


def _blob(layer: object) -> str:
    digest = layer.get("digest") if isinstance(layer, Mapping) else None
    named = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if named is None:
        raise BrokenManifest("its manifest has a layer without a digest")
    return f"sha256-{named[1]}"


def can_be_named(name: str) -> bool:
    """Whether a name can be told and asked for: of bounded length, and nothing in it that is not shown as it is."""
    return bool(name) and harmless(name, LONGEST_NAME) == name
