"""The kinds of entries about the processes themselves: their life, configuration, callers and jobs."""

from dataclasses import dataclass
from logging import CRITICAL, ERROR, INFO, WARNING

from gpusupervisor.journal.entry import NOTICE, Entry


@dataclass(frozen=True, slots=True)
class ServiceReady(Entry):
    """The supervisor owns its bus name and answers."""

    message_id = "1d76219ebd534a54a31e5b374a02a2b2"
    level = INFO
    text = "gpusupervisor {version} is ready: {tenants} tenants are described, automatic: {automatic}"
    version: str
    tenants: int
    automatic: str


@dataclass(frozen=True, slots=True)
class ServiceStopping(Entry):
    """The supervisor has begun to end."""

    message_id = "95dd3d98e5314d86804a7d6310ccf1cf"
    level = INFO
    text = "gpusupervisor {version} is stopping"
    version: str


@dataclass(frozen=True, slots=True)
class BusUnreachable(Entry):
    """There is no bus to serve on, or no name on it: the process ends."""

    message_id = "c7cf87aef6a243e6a8dceffed374112b"
    level = CRITICAL
    text = "{detail}"
    detail: str


@dataclass(frozen=True, slots=True)
class BusLost(Entry):
    """The bus or the name on it is gone: the process ends and systemd starts it anew."""

    message_id = "4a80e8c56ad947d69f610bf282552ccb"
    level = ERROR
    text = "{detail}: calls can no longer be answered"
    detail: str


@dataclass(frozen=True, slots=True)
class ConfigurationProblem(Entry):
    """Something in a configuration file is wrong."""

    message_id = "40411a63f4074c89b92fc7e2eaf4edfb"
    level = ERROR
    text = "configuration: {problem}"
    problem: str
    check: str = "configuration"


@dataclass(frozen=True, slots=True)
class ConfigurationReloaded(Entry):
    """The files were read anew and are in force."""

    message_id = "c3d90a31dc6740a196f9159f3568309d"
    level = INFO
    text = "configuration reloaded: {tenants} tenants are described"
    tenants: int


@dataclass(frozen=True, slots=True)
class ReloadRefused(Entry):
    """The files have errors, so what was running is kept."""

    message_id = "db586b5ba7d344b49d31974dddffdefa"
    level = ERROR
    text = "configuration not reloaded, the previous one stays in force: {problem}"
    problem: tuple[str, ...]
    check: str = "configuration"


@dataclass(frozen=True, slots=True)
class AutomaticSwitched(Entry):
    """Somebody chose whether plans are carried out by themselves."""

    message_id = "f625a1984af0427ea2b2a3a580c5022c"
    level = NOTICE
    text = "now {state}"
    state: str
    automatic: str


@dataclass(frozen=True, slots=True)
class AuthorityUnavailable(Entry):
    """polkit gave no verdict, so a caller was refused."""

    message_id = "a39a6cda24a346d88fe875aa975caeb9"
    level = WARNING
    text = "polkit gave no answer about {action}: {detail}"
    action: str
    detail: str


@dataclass(frozen=True, slots=True)
class Defect(Entry):
    """A mistake of gpusupervisor's own ended a call or a job; its traceback is in the message."""

    message_id = "db36c404be5a4765bb6ed3c8629b450e"
    level = ERROR
    text = "{method} failed because of a bug in gpusupervisor"
    method: str


@dataclass(frozen=True, slots=True)
class EntriesLost(Entry):
    """journald did not take entries, and nothing waits for it."""

    message_id = "3efff81f81ff470183ba7f30c977e782"
    level = WARNING
    text = "{lost} entries before this one were lost: journald did not accept them"
    lost: int


@dataclass(frozen=True, slots=True)
class JobStarted(Entry):
    """Long work has begun."""

    message_id = "43c22bf256ec458e8df18e78c6f5c80e"
    level = INFO
    text = 'job {job} ({kind}, target "{target}") has started'
    job: int
    kind: str
    target: str


@dataclass(frozen=True, slots=True)
class JobEnded(Entry):
    """Long work was done, or cancelled as somebody wanted."""

    message_id = "f86b138015f74084b13fb575c1d48bfd"
    level = INFO
    text = 'job {job} ({kind}, target "{target}") has {outcome} after {duration}'
    job: int
    kind: str
    target: str
    outcome: str
    duration: int


@dataclass(frozen=True, slots=True)
class JobFailed(Entry):
    """Long work could not be done."""

    message_id = "bad74811970643528d3362c19b2b00a3"
    level = WARNING
    text = 'job {job} ({kind}, target "{target}") has failed after {duration}: {detail}'
    job: int
    kind: str
    target: str
    duration: int
    detail: str
