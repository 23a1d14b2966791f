"""Engines that answer slowly, without an end, with garbage, or with very much."""

import contextlib
import json
import os
import socket
import threading
import time
from typing import Literal

Kind = Literal["slow", "endless", "garbage", "huge"]
TENANT = """\
title = "Hostile {kind}"
engine = "ollama"
[match]
executables = ["/opt/hostile-{kind}"]
[endpoint]
url = "http://127.0.0.1:{port}"
[activity]
probes = [{{ kind = "http", get = "/api/ps", busy-when = "models" }}]
"""


class HostileEngine:
    """A server on a port of its own, in threads of this process."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._closed = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def tenant_file(self) -> str:
        """Describes it."""
        return TENANT.format(kind=self.kind, port=self._listener.getsockname()[1])

    def close(self) -> None:
        """Listen no more; what is being answered ends by itself."""
        self._closed.set()
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while not self._closed.is_set():
                peer, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer: socket.socket) -> None:
        with contextlib.suppress(OSError), peer:
            peer.settimeout(30)
            peer.recv(65536)
            match self.kind:
                case "slow":
                    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}":
                        if self._closed.wait(0.5):
                            return
                        peer.sendall(bytes([byte]))
                case "endless":
                    peer.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                    while not self._closed.is_set():
                        peer.sendall(b"1000\r\n" + b" " * 4096 + b"\r\n")
                        time.sleep(0.001)
                case "garbage":
                    peer.sendall(os.urandom(4096))
                case "huge":
                    body = json.dumps({"models": [{"name": "m" * 1000, "size": number} for number in range(20_000)]})
                    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body.encode())
