"""The kinds of entries about what is wrong, and well again."""

from dataclasses import dataclass
from logging import ERROR, INFO, WARNING

from gpusupervisor.journal.entry import Entry


@dataclass(frozen=True, slots=True)
class DriverTrouble(Entry):
    """The driver cannot be used."""

    message_id = "f9a8d103ce924baba5f46afcf4ee5ff9"
    level = ERROR
    text = "the driver is {state}: {detail}. {impact} {remedy}"
    state: str
    detail: str
    impact: str
    remedy: str
    check: str = "driver"


@dataclass(frozen=True, slots=True)
class DriverAnswers(Entry):
    """The driver can be used: at the first look, and after it could not."""

    message_id = "38cc86afa09649eea2cd55a087f4be19"
    level = INFO
    text = "driver {version} answers"
    version: str
    check: str = "driver"


@dataclass(frozen=True, slots=True)
class DriverUpgraded(Entry):
    """The driver's kernel module is another than its library: only a new process can use it."""

    message_id = "948bf7b89aa64b15a52f565d77734eae"
    level = WARNING
    text = "the driver was upgraded: restarting to load its new library"
    check: str = "driver"


@dataclass(frozen=True, slots=True)
class GpuLost(Entry):
    """A GPU cannot be read any more."""

    message_id = "cf019a9d095f476dba1fe22978cdabcc"
    level = ERROR
    text = "{gpu_name} ({gpu}) is {state}: {detail}. To do: {remedy}"
    gpu: str
    gpu_name: str
    state: str
    detail: str
    remedy: str
    check: str


@dataclass(frozen=True, slots=True)
class GpuBack(Entry):
    """A GPU that could not be read can be read again."""

    message_id = "4996f0d704e2430fa85367c0d1fe33e3"
    level = INFO
    text = "{gpu_name} ({gpu}) is back"
    gpu: str
    gpu_name: str
    check: str


@dataclass(frozen=True, slots=True)
class CheckFailed(Entry):
    """A self-check has begun to fail."""

    message_id = "1d60e8319d28499f8d7a7fab7c394b96"
    level = ERROR
    text = "check {check} failed: {summary}. This breaks: {impact}. To do: {remedy}"
    check: str
    state: str
    summary: str
    impact: str
    remedy: str


@dataclass(frozen=True, slots=True)
class CheckDegraded(Entry):
    """A self-check says that something does not work as it should."""

    message_id = "feb6f78f8d2d4e3584face768cfb2adc"
    level = WARNING
    text = "check {check} is degraded: {summary}. This breaks: {impact}. To do: {remedy}"
    check: str
    state: str
    summary: str
    impact: str
    remedy: str


@dataclass(frozen=True, slots=True)
class CheckRecovered(Entry):
    """What a self-check found wrong is well again."""

    message_id = "16c631b930704b859df99a69888acb61"
    level = INFO
    text = "check {check} is ok again; it was: {summary}"
    check: str
    state: str
    summary: str


@dataclass(frozen=True, slots=True)
class HelperLost(Entry):
    """The privileged process does not tell what it controls."""

    message_id = "03b671dcb21347fa8ec66de80cb9f8f2"
    level = WARNING
    text = "the state of fans and profiles is unknown: {detail}"
    detail: str
    check: str = "fans"


@dataclass(frozen=True, slots=True)
class HelperBack(Entry):
    """The privileged process tells again what it controls."""

    message_id = "c0df1a64f38d4c0aaa5b2b58dbd4e686"
    level = INFO
    text = "the helper answers again: the state of fans and profiles is known"
    check: str = "fans"


@dataclass(frozen=True, slots=True)
class StoreReplaced(Entry):
    """The telemetry store was damaged; it was put aside and another was begun."""

    message_id = "2ead35c2cd8f4c1b943ed34c432d2ca5"
    level = ERROR
    text = "the telemetry store is damaged ({detail}): {found}"
    detail: str
    found: str
    check: str = "telemetry"


@dataclass(frozen=True, slots=True)
class TelemetryLost(Entry):
    """The service ended and could not store what waited."""

    message_id = "ebbb83ba126047f0b8e89b81d537476b"
    level = ERROR
    text = "telemetry could not be stored before the service ended: {found}. {detail}"
    detail: str
    found: str
    check: str = "telemetry"
