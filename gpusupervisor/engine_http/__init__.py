"""How engines are asked over HTTP: bounded in time and size, following nobody, this machine only unless told."""

from gpusupervisor.engine_http.address import connectable, is_local
from gpusupervisor.engine_http.answer import Answer, BadAnswer, HttpError, NeedsKey, NotAllowed, TimedOut, Unreachable
from gpusupervisor.engine_http.client import EngineHttp
from gpusupervisor.engine_http.connection import MAX_BODY
from gpusupervisor.engine_http.keys import Header, HeaderValue, KeyFile, has_key, without_keys

__all__ = [
    "MAX_BODY",
    "Answer",
    "BadAnswer",
    "EngineHttp",
    "Header",
    "HeaderValue",
    "HttpError",
    "KeyFile",
    "NeedsKey",
    "NotAllowed",
    "TimedOut",
    "Unreachable",
    "connectable",
    "has_key",
    "is_local",
    "without_keys",
]
