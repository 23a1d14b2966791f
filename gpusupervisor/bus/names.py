"""The names that are the D-Bus contract: bus name, paths, interfaces, errors, polkit actions."""

import string

BUS_NAME = "org.gpusupervisor1"
ROOT = "/org/gpusupervisor1"
TENANTS_PATH = f"{ROOT}/tenants"
ENGINES_PATH = f"{ROOT}/engines"
GPUS_PATH = f"{ROOT}/gpus"
HEALTH_PATH = f"{ROOT}/health"
TELEMETRY_PATH = f"{ROOT}/telemetry"
JOBS_PATH = f"{ROOT}/jobs"
HELPER_NAME = f"{BUS_NAME}.Helper"
HELPER_PATH = f"{ROOT}/Helper"
READER_NAME = f"{BUS_NAME}.Reader"
READER_PATH = f"{ROOT}/Reader"
LOG_CONTROL_PATH = "/org/freedesktop/LogControl1"
"""Where systemctl looks for it, on the name that the unit's BusName= tells."""
ERROR_PREFIX = f"{BUS_NAME}.Error."

ACTION_MAKE_ROOM = f"{BUS_NAME}.make-room"
ACTION_RELEASE = f"{BUS_NAME}.release"
ACTION_RELOAD = f"{BUS_NAME}.reload"
ACTION_SET_AUTOMATIC = f"{BUS_NAME}.set-automatic"
ACTION_LOAD_MODEL = f"{BUS_NAME}.load-model"
ACTION_UNLOAD_MODEL = f"{BUS_NAME}.unload-model"
ACTION_FORGET = f"{BUS_NAME}.forget"
ACTION_INSPECT_PROCESS = f"{BUS_NAME}.inspect-process"
ACTION_CONTROL_FANS = f"{BUS_NAME}.control-fans"
ACTION_CONTROL_PROFILE = f"{BUS_NAME}.control-profile"
ACTION_DETACH = f"{BUS_NAME}.detach"
ACTION_WARM_MODEL = f"{BUS_NAME}.warm-model"
ACTION_CANCEL_JOB = f"{BUS_NAME}.cancel-job"

_LETTERS = string.ascii_letters.encode()
_DIGITS = string.digits.encode()


def escape(label: str) -> str:
    """An id as one element of an object path, escaped as systemd does (`sd_bus_path_encode`)."""
    escaped = "".join(
        chr(byte) if byte in _LETTERS or (position and byte in _DIGITS) else f"_{byte:02x}"
        for position, byte in enumerate(label.encode("utf-8", "surrogateescape"))
    )
    return escaped or "_"


def tenant_path(tenant: str) -> str:
    """The object of a tenant."""
    return f"{TENANTS_PATH}/{escape(tenant)}"


def engine_path(engine: str) -> str:
    """The object of an engine; its id is its tenant's."""
    return f"{ENGINES_PATH}/{escape(engine)}"


def gpu_path(uuid: str) -> str:
    """The object of a GPU."""
    return f"{GPUS_PATH}/{escape(uuid)}"


def job_path(number: int) -> str:
    """The object of a job."""
    return f"{JOBS_PATH}/{number}"
