"""The fields of our entries: one name everywhere, `tenant` here and `GPUSUPERVISOR_TENANT=` in the journal."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gpusupervisor.foreign_text import harmless
from gpusupervisor.quantities import format_bytes, format_duration

PREFIX = "GPUSUPERVISOR_"
TEXT_LIMIT = 1024
"""Characters of one field; what is longer is cut."""
Form = Literal["text", "bytes", "usec", "number"]
Value = str | int | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """What a value is, and so how it is written."""

    name: str
    meaning: str
    form: Form = "text"

    @property
    def journal_name(self) -> str:
        """As `journalctl` matches it; durations say their unit as systemd's own fields do."""
        return PREFIX + self.name.upper() + ("_USEC" if self.form == "usec" else "")

    def values(self, value: Value) -> tuple[str, ...]:
        """For the journal: figures exact and without a unit, a list as the field several times.

        What is empty is there too, or `journalctl -x` would put the field's name in its place.
        """
        if isinstance(value, int):
            return (str(value),)
        texts = value if isinstance(value, tuple) else (value,)
        return tuple(harmless(text, TEXT_LIMIT) for text in texts)

    def shown(self, value: Value) -> str:
        """For the sentence that a person reads."""
        if isinstance(value, int):
            if self.form == "bytes":
                return format_bytes(value)
            return format_duration(value) if self.form == "usec" else str(value)
        return ", ".join(self.values(value)) or ("none" if isinstance(value, tuple) else "")


FIELDS: Mapping[str, Field] = {
    field.name: field
    for field in (
        Field("tenant", "the tenant that it is about; a plan has one for everybody it concerns"),
        Field("engine", "the engine that the tenant is, where it is one that is known"),
        Field("endpoint", "the address at which the engine is asked"),
        Field("process", "PID of the engine's server", "number"),
        Field("gpu", "UUID of the GPU"),
        Field("gpu_name", "the GPU's product name"),
        Field("plan", "id of the plan; they are counted on from start to start of the service"),
        Field("cause", "of a plan: starved, make-room, release or idle; of a fan alert: what went wrong"),
        Field("beneficiary", "the tenant that a plan makes room for"),
        Field("step", "a step of a plan: the tenant that is asked, the bytes expected of it, and why it"),
        Field("blocker", "who is in the way of a plan, with how many bytes, and why"),
        Field("shortfall", "what is missing", "bytes"),
        Field("reclaimable", "what can be asked for altogether", "bytes"),
        Field("expected", "what a step should bring", "bytes"),
        Field("freed", "what came back, as measured", "bytes"),
        Field("available", "what is free for the beneficiary", "bytes"),
        Field("duration", "how long it took or lasted", "usec"),
        Field("sufficient", "yes or no: whether the plan's steps reach what is missing"),
        Field("outcome", "how a step or a plan ended"),
        Field("summary", "what is to be done, or is wrong, in a sentence"),
        Field("detail", "the reason, in a sentence"),
        Field("impact", "what that breaks"),
        Field("remedy", "what to do about it"),
        Field("check", "id of the self-check"),
        Field("state", "the state that something is in now"),
        Field("version", "of the service, or of the driver"),
        Field("item", "the setting of a profile"),
        Field("accepted", "what was read back when the setting was made"),
        Field("found", "what is read now"),
        Field("end", "how a trial ended"),
        Field("xid", "the code of the error that the driver reports", "number"),
        Field("job", "number of the job", "number"),
        Field("kind", "what the job does"),
        Field("target", "what the job works on"),
        Field("problem", "what is wrong with the configuration: file, key, and what is allowed"),
        Field("tenants", "how many tenants are described", "number"),
        Field("automatic", "yes or no: whether plans are carried out by themselves"),
        Field("action", "the polkit action that was asked about"),
        Field("method", "the D-Bus method that was called"),
        Field("user", "uid of the caller", "number"),
        Field("lost", "how many entries journald did not take", "number"),
    )
}
