"""The kinds of entries of the privileged process: fans, profiles and drift."""

from dataclasses import dataclass
from logging import ERROR, INFO, WARNING

from gpusupervisor.journal.entry import Entry


@dataclass(frozen=True, slots=True)
class FanFailSafe(Entry):
    """Fans were given back to the driver, or cannot be controlled as they were set."""

    message_id = "93b8cf0e8d964b9d922f7b5e1e0e722b"
    level = WARNING
    text = "{detail}"
    gpu: str
    cause: str
    detail: str


@dataclass(frozen=True, slots=True)
class FansControlled(Entry):
    """Fans that had been given back to the driver are controlled again."""

    message_id = "f0cf2f40aa994c14b8bf405712c5afcc"
    level = INFO
    text = "{detail}"
    gpu: str
    detail: str


@dataclass(frozen=True, slots=True)
class FansRestored(Entry):
    """What a helper that was killed had taken was given back to the driver."""

    message_id = "205107313ae1488a862213075fc6e066"
    level = INFO
    text = "{detail}"
    detail: str


@dataclass(frozen=True, slots=True)
class FansStranded(Entry):
    """Fans that a killed helper had taken cannot be given back."""

    message_id = "1f67eecb6b2f4451b272bd5be5664edd"
    level = ERROR
    text = "{detail}"
    detail: str


@dataclass(frozen=True, slots=True)
class DriftDetected(Entry):
    """A setting is not any more what was accepted when it was made."""

    message_id = "fa67eb6867794548930d351ae69587f2"
    level = WARNING
    text = "{item} of {gpu} has drifted ({cause}): it was {accepted}, now it is {found}"
    gpu: str
    item: str
    cause: str
    accepted: str
    found: str
    detail: str


@dataclass(frozen=True, slots=True)
class DriftRepaired(Entry):
    """A setting that had drifted was made again."""

    message_id = "7c6e14a480364ee48b2f2c7fd41da8c2"
    level = INFO
    text = "{item} of {gpu} was set again: {accepted}"
    gpu: str
    item: str
    accepted: str
    detail: str


@dataclass(frozen=True, slots=True)
class DriftContested(Entry):
    """A setting drifted too often: somebody else makes it too, and it is not fought over."""

    message_id = "98e045ec97e34aa7805e0a86033ed074"
    level = WARNING
    text = "{item} of {gpu} is contested and no longer repaired: it was {accepted}, now it is {found}"
    gpu: str
    item: str
    cause: str
    accepted: str
    found: str
    detail: str


@dataclass(frozen=True, slots=True)
class DriftEnded(Entry):
    """A setting that had drifted is as it was set, though nobody repaired it, or is not wanted any more."""

    message_id = "6f95a1aebb3d498dae821333b114a971"
    level = INFO
    text = "the drift of {item} of {gpu} is over: {detail}"
    gpu: str
    item: str
    cause: str
    detail: str


@dataclass(frozen=True, slots=True)
class TrialEnded(Entry):
    """A profile on trial was confirmed or taken back."""

    message_id = "48b0c87665cb46c890a594d0b8952a12"
    level = INFO
    text = "the trial of a profile on {gpu} ended, {end}: {detail}"
    gpu: str
    end: str
    detail: str


@dataclass(frozen=True, slots=True)
class ProfileDistrusted(Entry):
    """A stored profile may have brought the machine down: it is not applied by itself."""

    message_id = "3366b3d25a1648acbd4f5fb266cacd29"
    level = WARNING
    text = "the profile of {gpu} is not applied automatically: {detail}"
    gpu: str
    detail: str


@dataclass(frozen=True, slots=True)
class ProfileNotStored(Entry):
    """The disk did not take or give a profile."""

    message_id = "02bf61d5cda947f2b3d35e42b7beebbe"
    level = WARNING
    text = "{detail}"
    gpu: str
    detail: str


@dataclass(frozen=True, slots=True)
class XidReported(Entry):
    """The driver reported an error of a GPU."""

    message_id = "df33f34c4f39444aa6d73f9094e3958b"
    level = WARNING
    text = "the driver reports Xid {xid} for GPU {gpu}"
    gpu: str
    xid: int


@dataclass(frozen=True, slots=True)
class CallerRefused(Entry):
    """A user who may not call a privileged service did."""

    message_id = "3ab208702b214c6a9ebcb8cc585d1a7d"
    level = WARNING
    text = "refused a call from user {user}"
    user: int
