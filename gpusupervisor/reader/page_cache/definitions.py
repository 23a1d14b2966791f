"""Where a tenant's models are, believed only of files that nobody but root could have written. Blocks."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from gpusupervisor.configuration.document import DocumentError, Table, parse_document
from gpusupervisor.errors import NotSupported
from gpusupervisor.privileged.root_files import RootFolder, UntrustedFile
from gpusupervisor.tenants.catalog import load_catalog
from gpusupervisor.tenants.definition import ModelFolders


def model_folders(layers: Sequence[Path], tenant: str, owner: int = 0) -> ModelFolders:
    """As the definitions say, laid over each other as the supervisor does. Raises NoSuchTenant, NotSupported."""
    definition = load_catalog(layers, partial(read_trusted, owner=owner)).resolve(tenant)
    if definition.models is None or not definition.models.directories:
        raise NotSupported(
            f"No tenant file that root owns says where the models of {tenant} are: name their directories in "
            f"[models] in /etc/gpusupervisor/tenants.d/{tenant}.toml"
        )
    return definition.models


def read_trusted(path: Path, owner: int = 0) -> Table | None:
    """See `read_document`; a file that others could have written is a DocumentError."""
    try:
        if path.is_symlink() and path.lstat().st_uid == owner and os.readlink(path) == os.devnull:
            return None
        text = RootFolder(path.parent, owner).read(path.name)
    except UntrustedFile as error:
        raise DocumentError(str(error)) from error
    except OSError as error:
        raise DocumentError(f"cannot be read: {error.strerror}") from error
    if text is None:
        raise FileNotFoundError(path)
    return parse_document(path.name, text) if text else None
