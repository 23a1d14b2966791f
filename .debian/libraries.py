"""Prints the substvar libraries:Depends: the Debian packages of the libraries that are not in the venv.

The build fails if a required library is neither in the venv nor in the release.
"""

import subprocess
import sys
from importlib.metadata import Distribution, distributions

from pip._vendor.packaging.requirements import Requirement  # what pip itself decided by

SHARED = "/usr/lib/python3/dist-packages"


def normal(name: str) -> str:
    """A distribution's name as all its spellings are compared."""
    return name.lower().replace("_", "-").replace(".", "-")


def found_in(folder: str) -> dict[str, Distribution]:
    """What is installed in a folder, by name."""
    return {normal(each.metadata["Name"]): each for each in distributions(path=[folder])}


def needed(distribution: Distribution) -> list[Requirement]:
    """What it requires here, extras apart."""
    requirements = map(Requirement, distribution.requires or [])
    return [each for each in requirements if each.marker is None or each.marker.evaluate({"extra": ""})]


def package_of(distribution: Distribution) -> str:
    """The Debian package that brought it."""
    metadata = distribution.locate_file(distribution._path.name)  # noqa: SLF001  (there is no public way)
    listed = subprocess.run(["dpkg-query", "--search", str(metadata)], check=True, capture_output=True, text=True)
    return listed.stdout.split(":")[0]


def main(venv: str) -> None:
    """Print the substvar for the program in this venv (its site-packages)."""
    own, shared = found_in(venv), found_in(SHARED)
    versions: dict[str, str] = {}
    todo = ["gpusupervisor"]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if name not in own:
            continue  # the release's own package has its own dependencies
        for requirement in needed(own[name]):
            dependency = normal(requirement.name)
            todo.append(dependency)
            if dependency in own:
                continue
            package = package_of(shared[dependency])
            least = next((s.version for s in requirement.specifier if s.operator in (">=", "~=")), "")
            versions[package] = max(versions.get(package, ""), least)
    relations = [f"{package} (>= {least})" if least else package for package, least in sorted(versions.items())]
    print("libraries:Depends=" + ", ".join(relations))


main(*sys.argv[1:])
