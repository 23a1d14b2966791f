"""What a caller can be told: every error names what failed and what to do; `code` is its D-Bus name's last part."""


class SupervisorError(Exception):
    """Base of the errors that reach a caller."""

    code = "Failed"


class NoSuchTenant(SupervisorError):  # noqa: N818  (the names are the D-Bus contract)
    """No tenant has that id."""

    code = "NoSuchTenant"


class NoSuchEngine(SupervisorError):  # noqa: N818
    """No engine has that id."""

    code = "NoSuchEngine"


class NoSuchProcess(SupervisorError):  # noqa: N818
    """No process with that PID holds memory of a GPU."""

    code = "NoSuchProcess"


class EngineUnreachable(SupervisorError):  # noqa: N818
    """The engine is not running, or does not answer."""

    code = "EngineUnreachable"


class NoSuchGpu(SupervisorError):  # noqa: N818
    """No GPU has that UUID, or none is named and there is not exactly one."""

    code = "NoSuchGpu"


class NotReclaimable(SupervisorError):  # noqa: N818
    """The tenant cannot be asked for its memory."""

    code = "NotReclaimable"


class Busy(SupervisorError):  # noqa: N818
    """The tenant works, or a plan is being executed on the GPU."""

    code = "Busy"


class Deferred(SupervisorError):  # noqa: N818
    """The engine accepted and will give the memory back when its work is done."""

    code = "Deferred"


class ReleaseFailed(SupervisorError):  # noqa: N818
    """The tenant was asked and the memory did not come back."""

    code = "ReleaseFailed"


class WontFit(SupervisorError):  # noqa: N818
    """The need cannot be met by any release, now or ever; the text has the arithmetic."""

    code = "WontFit"


class Blocked(SupervisorError):  # noqa: N818
    """A plan cannot reach the need; the text names who is in the way."""

    code = "Blocked"


class GpuUnavailable(SupervisorError):  # noqa: N818
    """The driver or the GPU cannot be asked now (missing, lost, asleep, unresponsive)."""

    code = "GpuUnavailable"


class NotSupported(SupervisorError):  # noqa: N818
    """The hardware or the driver cannot do that; the text says why."""

    code = "NotSupported"


class InvalidArgument(SupervisorError):  # noqa: N818
    """An argument has no meaning here."""

    code = "InvalidArgument"


class InvalidConfiguration(SupervisorError):  # noqa: N818
    """The configuration has errors; what was running is kept."""

    code = "InvalidConfiguration"


class NoSuchModel(SupervisorError):  # noqa: N818
    """The engine lists no model of that name."""

    code = "NoSuchModel"


class LoadFailed(SupervisorError):  # noqa: N818
    """The engine was asked to load a model and did not."""

    code = "LoadFailed"
