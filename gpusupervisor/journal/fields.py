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
Value = str | int | tuple[str, ...] | None
"""None: not known."""


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
        if value is None:
            return ("",)
        texts = value if isinstance(value, tuple) else (value,)
        return tuple(harmless(text, TEXT_LIMIT) for text in texts)

    def shown(self, value: Value) -> str:
        """For the sentence that a person reads."""
        if value is None:
            return "an unknown amount"
        if isinstance(value, int):
            if self.form == "bytes":
                return format_bytes(value)
            return format_duration(value) if self.form == "usec" else str(value)
        return ", ".join(self.values(value)) or ("none" if isinstance(value, tuple) else "")


FIELDS: Mapping[str, Field] = {
    field.name: field
    for field in (
        Field("tenant", "the tenant concerned; a plan has one field for each tenant it concerns"),
        Field("engine", "the kind of engine, if the tenant is one"),
        Field("endpoint", "address of the engine's interface"),
        Field("process", "PID of the engine's server", "number"),
        Field("gpu", "UUID of the GPU"),
        Field("gpu_name", "the GPU's product name"),
        Field("plan", "id of the plan; the numbers continue across restarts of the service"),
        Field("cause", "of a plan: starved, make-room, release or idle; of a fan alert: what went wrong"),
        Field("beneficiary", "the tenant that a plan makes room for"),
        Field("step", "a step of a plan: the tenant that is asked, the bytes expected from it, and why it was chosen"),
        Field("blocker", "who is in the way of a plan, with how many bytes, and why"),
        Field("resting", "a tenant that was idle meanwhile, and the bytes it held"),
        Field("swaps", "how often the memory changed hands", "number"),
        Field("shortfall", "bytes that are missing", "bytes"),
        Field("reclaimable", "bytes that could be released in total", "bytes"),
        Field("expected", "bytes that a step was expected to free", "bytes"),
        Field("freed", "bytes that came back, as measured", "bytes"),
        Field("available", "bytes available to the beneficiary", "bytes"),
        Field("duration", "how long it took or lasted", "usec"),
        Field("sufficient", "yes or no: whether the plan's steps free what is missing"),
        Field("outcome", "how a step or a plan ended"),
        Field("summary", "what will be done, or what is wrong, in one sentence"),
        Field("detail", "the reason, in one sentence"),
        Field("impact", "what the problem breaks"),
        Field("remedy", "what to do about the problem"),
        Field("check", "id of the self-check"),
        Field("state", "the current state"),
        Field("version", "version of the service or of the driver"),
        Field("item", "the setting of a profile that is concerned"),
        Field("accepted", "the value that was read back when the setting was made"),
        Field("found", "the value that is read now"),
        Field("end", "how a trial ended"),
        Field("model", "the model concerned, by the name of its files"),
        Field("size", "bytes of its files", "bytes"),
        Field("xid", "number of the Xid error that the driver reports", "number"),
        Field("job", "number of the job", "number"),
        Field("kind", "what the job does"),
        Field("target", "what the job works on"),
        Field("problem", "what is wrong with the configuration: file, key, and what is allowed"),
        Field("tenants", "number of tenants that are described", "number"),
        Field("automatic", "yes or no: whether plans are carried out automatically"),
        Field("action", "the polkit action that was asked about"),
        Field("method", "the D-Bus method that was called"),
        Field("user", "uid of the caller", "number"),
        Field("lost", "number of entries that journald did not accept", "number"),
    )
}
