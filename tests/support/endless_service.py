"""A service that answers every request, and does not stop at SIGTERM."""

from __future__ import annotations

import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

LAST_WORDS = "it stays"


class Handler(BaseHTTPRequestHandler):
    """Answers 200 without content."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.stdout.write(LAST_WORDS) and sys.stdout.flush())
    HTTPServer(("127.0.0.1", int(os.environ["TBHUB_PORT"])), Handler).serve_forever()
