"""What comes of asking an engine over HTTP: an answer, or one of a few errors."""

import json
from dataclasses import dataclass

from gpusupervisor.foreign_text import harmless

LONGEST_REFUSAL = 65_536
"""Bytes of a refusal that are looked through."""


class HttpError(Exception):
    """No usable answer; the text is one clause for a person."""


class Unreachable(HttpError):  # noqa: N818  (read as states of the peer)
    """Nothing listens there: the connection was refused."""


class NoRoute(HttpError):  # noqa: N818
    """There is no way there: no route, no network, or a name that does not resolve."""


class TimedOut(HttpError):  # noqa: N818
    """No whole answer within the deadline."""


class BadAnswer(HttpError):  # noqa: N818
    """It answered, with something that cannot be used: too big, cut off, not JSON, a redirect."""


class NeedsKey(BadAnswer):
    """It answered that it lets nobody in without a key, or not with this one."""


class NotTls(BadAnswer):
    """It speaks TLS where plain HTTP was tried, or the other way round."""


class BadCertificate(HttpError):  # noqa: N818
    """Never sent: the certificate of another machine cannot be trusted."""


class NotAllowed(HttpError):  # noqa: N818
    """Never sent: not a usable address, or not on this machine."""


class Blocked(NotAllowed):
    """Never sent: this service may not connect to there."""


class ForeignSocket(HttpError):  # noqa: N818
    """Never sent: the socket at the other end is not the tenant's."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered, whole and within the limits."""

    status: int
    body: bytes
    content_type: str

    @property
    def ok(self) -> bool:
        """A 2xx status."""
        return 200 <= self.status < 300

    def text(self) -> str:
        """The body as UTF-8. Raises BadAnswer."""
        try:
            return self.body.decode()
        except UnicodeDecodeError:
            raise BadAnswer("answered bytes that are not UTF-8") from None

    def json(self) -> object:
        """The body as JSON, whatever its content type. Raises BadAnswer."""
        if not self.body:
            raise BadAnswer("answered nothing where JSON was expected")
        try:
            parsed: object = json.loads(self.body, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            kind = harmless(self.content_type, 40) or "no content type"
            raise BadAnswer(f"answered something that is not JSON ({kind})") from None
        return parsed

    def words(self) -> str:
        """What it says of why it did not do it, in one harmless line: the text that its JSON has for that, else all."""
        try:
            told = self.json() if len(self.body) <= LONGEST_REFUSAL else None
        except BadAnswer:
            told = None
        found = _reason(told)
        return harmless(found if found else self.body[:LONGEST_REFUSAL].decode(errors="replace"))


def _reason(told: object) -> str:
    """Ollama and llama-swap have {"error": text}, llama.cpp {"error": {"message": text}}, FastAPI {"detail": text}."""
    if not isinstance(told, dict):
        return ""
    error = told.get("error")
    texts = (error.get("message") if isinstance(error, dict) else error, told.get("detail"), told.get("message"))
    return next((text for text in texts if isinstance(text, str) and text), "")


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
