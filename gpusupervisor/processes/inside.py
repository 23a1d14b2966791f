"""What /proc shows of a process only to its own user and to root: executable, folder, ports, named variables.

One way of reading for both: the supervisor tries it for what its user may see, the reader for everybody's.
Everything is bounded, and believed only while the process is the same before and after.
"""

import os
import re
from collections.abc import Iterable, Iterator, Set
from itertools import islice
from pathlib import Path

from gpusupervisor.processes.identity import OwnNetwork, ProcessKey
from gpusupervisor.processes.privileged import PrivilegedFacts
from gpusupervisor.processes.procfs import Procfs, without_control
from gpusupervisor.processes.settings_files import SettingsFile, Sources, read_sources

MAX_DESCRIPTORS = 4096
MAX_SOCKETS = 4096
"""Lines of one of the kernel's tables; it lists the listening sockets first."""
MAX_PORTS = 32
MAX_TABLE = 64 * 1024
"""Bytes of a routing table that are read."""
MAX_ADDRESSES = 8
MAX_ENVIRONMENT = 256 * 1024
"""Bytes."""
MAX_VALUE = 256
"""Characters of one variable's value."""
OWN_NETWORK = "self"
HOST_NETWORK = "1"
"""The process whose network counts as the machine's: PID 1 for who has no network of its own."""

WITHHELD = "(set)"
"""Told in the place of what a variable holds that is secret by its name, and of such a flag's value within one."""

_SECRET = re.compile(r"(?:.*_)?(?:KEYS?|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|AUTH)", re.IGNORECASE)
_SECRET_FLAG = re.compile(
    r"(--?[\w-]*(?:key|token|secret|password|auth)[\w-]*[= ]+)(?:'[^']*'|\"[^\"]*\"|\S+)", re.IGNORECASE
)
_PLACES = {b"HOME", b"XDG_CONFIG_HOME", b"INVOKEAI_ROOT", b"VIRTUAL_ENV"}
"""Variables that say where configuration files are; only used, never told."""
_LISTENING = b"0A"
_DEVICE = re.compile(r"/dev/nvidia[0-9]+")
_OWN_ADDRESS = re.compile(rb"\|-- ([0-9.]{7,15})\n\s+/32 host LOCAL")
"""In /proc/net/fib_trie."""
_SOCKET = re.compile(r"socket:\[(\d{1,20})\]")
_REACHABLE = re.compile(rb"(?:00000000|[0-9A-F]{6}7F|0{32}|0{16}FFFF0000[0-9A-F]{6}7F|0{16}FFFF00000{8}):([0-9A-F]{4})")
"""Local addresses that 127.0.0.1 leads to, in the kernel's notation: any, 127.0.0.0/8, and both within IPv6."""


def read_inside(
    root: Path,
    key: ProcessKey,
    variables: Set[str] = frozenset(),
    network: str = OWN_NETWORK,
    sources: Sources | None = None,
) -> PrivilegedFacts | None:
    """The facts of exactly this process; None when it is gone. Raises PermissionError when they are not for us.

    variables: names of the environment variables that may be told. network: whose network its ports are looked for
    in; a process in another one (a container's) has no port that could be reached, so none is told. sources: names the
    configuration files that it reads.
    """
    proc = Procfs(root)
    stat = proc.stat(key.pid)
    if stat is None or stat.key != key:
        return None
    folder = f"{root}/{key.pid}"
    try:
        executable, working_directory = _link(proc, key.pid, "exe"), _link(proc, key.pid, "cwd")
        sockets, has_gpu = _descriptors(folder)
        ports, elsewhere, own_network = _ports(folder, f"{root}/{network}", sockets)
        environment = _environment(folder, variables) if variables else ()
        configuration = _configuration(proc, key.pid, folder, working_directory, sources) if sources else ()
    except (FileNotFoundError, ProcessLookupError):
        return None
    still = proc.stat(key.pid)
    if still is None or still.key != key:
        return None
    return PrivilegedFacts(
        executable, working_directory, ports, environment, elsewhere, configuration, own_network, has_gpu
    )


def _configuration(
    proc: Procfs, pid: int, folder: str, working_directory: str, sources: Sources
) -> tuple[SettingsFile, ...]:
    """Its configuration files, in its own root directory."""
    with open(f"{folder}/environ", "rb") as file:
        pairs = (entry.partition(b"=")[::2] for entry in file.read(MAX_ENVIRONMENT).split(b"\0"))
        places = {name.decode(): value.decode("utf-8", "replace") for name, value in pairs if name in _PLACES}
    uid = proc.uid(pid)
    named = sources(proc.command_line(pid), working_directory, places)
    if not named or uid is None:
        return ()
    return read_sources(Path(folder, "root"), uid, named, _without_secret_key)


def _without_secret_key(key: str, value: str) -> str:
    return WITHHELD if value and _SECRET.fullmatch(key.replace("-", "_").rpartition(".")[2]) else value


def _link(proc: Procfs, pid: int, name: str) -> str:
    target = proc.link(pid, name)
    if target is None:
        raise PermissionError(f"/proc/{pid}/{name}")
    return target


def _ports(folder: str, network: str, sockets: Set[int]) -> tuple[tuple[int, ...], bool, OwnNetwork | None]:
    """TCP ports of this machine on which the process listens, ascending; whether it listens elsewhere too; and its
    network, if it has its own."""
    here = _network(folder) == _network(network)
    tables = ("tcp", "tcp6") if sockets else ()
    listening = [address for table in tables for address in _listening(f"{folder}/net/{table}", sockets)]
    if not here:
        inner = tuple(sorted({int(address.rpartition(b":")[2], 16) for address in listening})[:MAX_PORTS])
        return (), bool(listening), OwnNetwork(_addresses(f"{folder}/net/fib_trie"), inner)
    reached = [found for address in listening if (found := _REACHABLE.fullmatch(address))]
    return tuple(sorted({int(found[1], 16) for found in reached})[:MAX_PORTS]), len(reached) < len(listening), None


def _network(folder: str) -> str:
    """Which network namespace a process is in; empty for a kernel without any."""
    try:
        return os.readlink(f"{folder}/ns/net")
    except FileNotFoundError:
        return ""


def _addresses(table: str) -> tuple[str, ...]:
    """The IPv4 addresses of a network's own interfaces, from its routing table."""
    try:
        with open(table, "rb") as file:
            content = file.read(MAX_TABLE)
    except FileNotFoundError:
        return ()
    found = {match[1].decode() for match in _OWN_ADDRESS.finditer(content)}
    return tuple(sorted(address for address in found if not address.startswith("127.")))[:MAX_ADDRESSES]


def _descriptors(folder: str) -> tuple[frozenset[int], bool]:
    """Inode numbers of its sockets, and whether it has a device file of the driver open."""
    sockets: set[int] = set()
    has_gpu = False
    with os.scandir(f"{folder}/fd") as entries:
        for entry in islice(entries, MAX_DESCRIPTORS):
            try:
                target = os.readlink(entry.path)
            except FileNotFoundError:
                continue  # closed since the folder was read
            has_gpu = has_gpu or _DEVICE.fullmatch(target) is not None
            if found := _SOCKET.fullmatch(target):
                sockets.add(int(found[1]))
    return frozenset(sockets), has_gpu


def _listening(table: str, sockets: Set[int]) -> Iterator[bytes]:
    """Local addresses of the listening sockets among these."""
    try:
        with open(table, "rb") as lines:
            for line in islice(lines, 1, MAX_SOCKETS):
                fields = line.split(maxsplit=10)
                if len(fields) < 10 or fields[3] != _LISTENING:
                    return
                if int(fields[9]) in sockets:
                    yield fields[1]
    except FileNotFoundError:
        return  # a kernel without IPv6 has no tcp6


def _environment(folder: str, names: Set[str]) -> tuple[tuple[str, str], ...]:
    """The variables of these names as the process was started with them."""
    with open(f"{folder}/environ", "rb") as file:
        entries = file.read(MAX_ENVIRONMENT).split(b"\0")
    return tuple(sorted(_named(entries, names)))


def _named(entries: Iterable[bytes], names: Set[str]) -> Iterator[tuple[str, str]]:
    seen = set()
    for entry in entries:
        raw, separator, value = entry.partition(b"=")
        name = raw.decode("ascii", "replace")
        if separator and name in names and name not in seen:
            seen.add(name)  # the first one is what getenv(3) finds
            yield name, _without_secrets(name, without_control(value)[:MAX_VALUE])


def _without_secrets(name: str, value: str) -> str:
    if _SECRET.fullmatch(name):
        return WITHHELD if value else ""
    return _SECRET_FLAG.sub(rf"\1{WITHHELD}", value)
