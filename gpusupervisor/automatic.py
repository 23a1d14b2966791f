"""Automatic or observe-only: what a person last said stands over the configuration, also after a restart."""

from pathlib import Path


class AutomaticSwitch:
    """Keeps the choice in a file of the state directory; without a directory, for as long as the service runs."""

    def __init__(self, directory: Path | None, configured: bool) -> None:
        self._file = directory / "automatic" if directory else None
        self._chosen = self._read()
        self.configured = configured

    @property
    def on(self) -> bool:
        """Whether plans are carried out by themselves."""
        return self.configured if self._chosen is None else self._chosen

    def set(self, enabled: bool) -> None:
        """Remember a person's choice. Raises OSError when it cannot be written: nothing has changed then."""
        if self._file is not None:
            fresh = self._file.with_suffix(".new")
            fresh.write_text("on\n" if enabled else "off\n")
            fresh.replace(self._file)
        self._chosen = enabled

    def _read(self) -> bool | None:
        try:
            text = self._file.read_text().strip() if self._file else ""
        except (OSError, UnicodeDecodeError):
            return None
        return {"on": True, "off": False}.get(text)
