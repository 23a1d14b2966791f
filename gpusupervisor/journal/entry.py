"""An entry of the log that is of a known kind."""

import logging
from dataclasses import dataclass, fields
from typing import ClassVar

from gpusupervisor.journal.fields import FIELDS

NOTICE = 25
"""Between INFO and WARNING: not wrong, and worth knowing."""
logging.addLevelName(NOTICE, "NOTICE")

_LOG = logging.getLogger("gpusupervisor")


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that people care about. Each kind is a class, and its fields are those of `FIELDS`."""

    message_id: ClassVar[str]
    """128 bits in hexadecimal, never given to another kind: what `journalctl -x` explains it by."""
    level: ClassVar[int]
    text: ClassVar[str]
    """The sentence; `{name}` is a field."""

    def message(self) -> str:
        """The sentence with its values."""
        shown = {each.name: FIELDS[each.name].shown(getattr(self, each.name)) for each in fields(self)}
        return self.text.format_map(shown)

    def journal_fields(self) -> list[tuple[str, str]]:
        """Names and values for the journal; a name may come several times."""
        declared = [(FIELDS[each.name], getattr(self, each.name)) for each in fields(self)]
        return [(field.journal_name, text) for field, value in declared for text in field.values(value)]


def write(entry: Entry, *, error: BaseException | None = None) -> None:
    """Log an entry, on behalf of whoever calls. error: its traceback goes with it."""
    if _LOG.isEnabledFor(entry.level):
        _LOG.log(entry.level, "%s", entry.message(), exc_info=error, stacklevel=2, extra={"entry": entry})
