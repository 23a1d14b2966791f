"""Certificates of engines: verified on other machines; on this one the socket's owner is what counts."""

import hashlib
import os
import ssl
from functools import lru_cache

from gpusupervisor.engine_http.answer import BadCertificate, NotAllowed
from gpusupervisor.engine_http.peer import Peer


def context_for(peer: Peer, *, here: bool) -> ssl.SSLContext:
    """Return the context for a handshake. Blocks while it reads certificates.

    here: the other end is this machine, where self-signed certificates are the rule: they are verified only if the
    tenant's file names an authority. Raises NotAllowed.
    """
    if peer.fingerprint or (here and not peer.ca):
        return _unverified()
    try:
        return _verified(peer.ca, os.stat(peer.ca).st_mtime_ns if peer.ca else 0)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it holds no certificate"
        raise NotAllowed(f"its tls-ca file {peer.ca or 'of the system'} cannot be used: {reason}") from None


def check_fingerprint(peer: Peer, tls: ssl.SSLObject, where: str) -> None:
    """Raise BadCertificate if the certificate is not the one of the fingerprint, where there is one."""
    if not peer.fingerprint:
        return
    certificate = tls.getpeercert(binary_form=True) or b""
    found = hashlib.sha256(certificate).hexdigest()
    if found != peer.fingerprint:
        raise BadCertificate(f"has another certificate at {where} than the one of tls-fingerprint: {found}")


@lru_cache(maxsize=16)
def _verified(ca: str, _changed_at: int) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca or None)


@lru_cache(maxsize=1)
def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
