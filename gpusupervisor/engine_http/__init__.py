"""How engines are asked over HTTP: bounded in time and size, following nobody, this machine only unless told."""

from gpusupervisor.engine_http.address import UNIX, connectable, is_local
from gpusupervisor.engine_http.answer import (
    Answer,
    BadAnswer,
    BadCertificate,
    Blocked,
    ForeignSocket,
    HttpError,
    NeedsKey,
    NoRoute,
    NotAllowed,
    NotTls,
    TimedOut,
    Unreachable,
)
from gpusupervisor.engine_http.client import EngineHttp
from gpusupervisor.engine_http.connection import MAX_BODY
from gpusupervisor.engine_http.keys import Header, HeaderValue, KeyFile, has_key, without_keys
from gpusupervisor.engine_http.peer import NO_USERS, Peer

__all__ = [
    "MAX_BODY",
    "NO_USERS",
    "UNIX",
    "Answer",
    "BadAnswer",
    "BadCertificate",
    "Blocked",
    "EngineHttp",
    "ForeignSocket",
    "Header",
    "HeaderValue",
    "HttpError",
    "KeyFile",
    "NeedsKey",
    "NoRoute",
    "NotAllowed",
    "NotTls",
    "Peer",
    "TimedOut",
    "Unreachable",
    "connectable",
    "has_key",
    "is_local",
    "without_keys",
]
