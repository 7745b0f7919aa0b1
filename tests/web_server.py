"""A web server on the loopback interface, with or without TLS, that records the requests it receives."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from certificates import make_certificate

Answer = tuple[int, dict[str, str], bytes]


class WebServer:
    """Answers each path by `answers`: (status, headers, body), or a function that returns them."""

    def __init__(self, folder: Path | None) -> None:
        self.answers: dict[str, Answer | Callable[[], Answer]] = {}
        # (path with query, headers)
        self.requests: list[tuple[str, dict[str, str]]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests.append((self.path, dict(self.headers)))
                found = server.answers.get(self.path.partition("?")[0], (404, {}, b"none"))
                status, headers, body = found if isinstance(found, tuple) else found()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *words: object) -> None:  # noqa: A002  # named by the library
                """Prints nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        scheme = "http"
        if folder is not None:
            folder.mkdir(exist_ok=True)
            make_certificate(folder)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(folder / "tls.pem", folder / "tls.key")
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            scheme = "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.05)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def web_server(folder: Path | None = None) -> Iterator[WebServer]:
    """With a folder, it uses TLS with a certificate that it writes there: `tls.pem`."""
    server = WebServer(folder)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()
