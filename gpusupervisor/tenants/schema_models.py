"""The schema of `[models]`: where an engine's model files are."""

from collections.abc import Sequence

from gpusupervisor.configuration.checking import TableReader
from gpusupervisor.tenants.definition import ModelFolders, ModelLayout

LONGEST_PATH = 1024
MOST_DIRECTORIES = 16
WARM = ("off", "auto")
LAYOUTS: Sequence[ModelLayout] = ("files", "ollama")


def read_models(reader: TableReader) -> ModelFolders | None:
    """The table, or None where there is none or it has errors."""
    with reader.table("models") as models:
        if models is None:
            return None
        directories = models.texts("directories", _path_complaint)
        chosen = models.choice("layout", LAYOUTS, "files")
        layout: ModelLayout = "ollama" if chosen == "ollama" else "files"
        if not models.has("directories"):
            models.complain("directories", 'is missing, e.g. directories = ["/srv/models"]')
        elif len(directories) > MOST_DIRECTORIES:
            models.complain("directories", f"has more than {MOST_DIRECTORIES} entries")
        return ModelFolders(directories, layout, models.choice("warm", WARM, "off") == "auto")


def _path_complaint(path: str) -> str:
    parts = path.split("/")[1:]
    if not path.startswith("/") or not all(parts) or {".", ".."} & set(parts):
        return 'is no plain absolute path; allowed: e.g. "/srv/models", without . or .. or a / at the end'
    return "" if len(path) <= LONGEST_PATH else f"is longer than {LONGEST_PATH} characters"
