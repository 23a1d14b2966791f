"""Stands before an engine, so that something can happen right before it is asked for its memory."""

import http.client
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


def nothing() -> None:
    """What happens by default."""


class EngineProxy:
    """Passes everything on to a server; runs `before_release` when a POST, a release's request, comes by."""

    def __init__(self, url: str) -> None:
        self.before_release: Callable[[], None] = nothing
        upstream = urlsplit(url).netloc
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._pass_on(b"")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                proxy.before_release()
                self._pass_on(body)

            def _pass_on(self, body: bytes) -> None:
                connection = http.client.HTTPConnection(upstream, timeout=20)
                connection.request(self.command, self.path, body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                content = answer.read()
                connection.close()
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers.get("Content-Type", "text/plain"))
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
