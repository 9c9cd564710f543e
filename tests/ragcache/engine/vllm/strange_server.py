"""A server that speaks as vLLM's does, and says what it is told to say."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ragcache.engine.fingerprint import Digests
from ragcache.engine.vllm.requests import KEY
from ragcache.engine.vllm.served import ServedVllmEngine
from ragcache.engine.vllm.server import VllmServer
from ragcache.server_address import ServerAddress
from ragcache.store import open_store
from tests.tiny import make_tiny

CONTEXT = 512


@dataclass
class Script:
    """What is said next."""

    choices: list[dict[str, Any]] = field(default_factory=list)  # of an answer, an event each, or whole events
    report: Any = None  # at the end of one that is asked for; None: it is refused
    refusal: tuple[int, str] | None = None  # of all requests
    asked: list[dict[str, Any]] = field(default_factory=list)  # what was heard
    held: threading.Event | None = None  # after the choices an answer goes on until then
    headless: bool = False  # until then there is not even a head
    left: threading.Event = field(default_factory=threading.Event)  # somebody has gone amid an answer


def _handler(script: Script) -> type[http.server.BaseHTTPRequestHandler]:
    class Scripted(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say({"data": [{"id": "m", "max_model_len": CONTEXT}]})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            script.asked.append(asked)
            reports = "report" in asked["kv_transfer_params"][KEY]
            if script.refusal is not None or (reports and script.report is None):
                status, message = script.refusal or (500, "no report")
                self._say({"error": {"message": message}}, status)
            elif reports:
                self._say({"kv_transfer_params": script.report})
            else:
                self._stream()

        def _stream(self) -> None:
            if script.headless and script.held is not None:
                script.held.wait()
            self.send_response(200)
            self.end_headers()
            try:
                for choice in script.choices:
                    self._event(json.dumps(choice if "choices" in choice else {"choices": [choice]}))
                while script.held is not None and not script.held.wait(0.01):
                    self.wfile.write(b": still here\n\n")
                self._event("[DONE]")
            except OSError:
                script.left.set()

        def _event(self, said: str) -> None:
            self.wfile.write(f"data: {said}\n\n".encode())

        def _say(self, said: Any, status: int = 200) -> None:
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *told: object) -> None:
            pass

    return Scripted


@contextmanager
def engine_before(script: Script, folder: Path) -> Iterator[ServedVllmEngine]:
    """Of a tiny model, which it saves there."""
    make_tiny().model.save_pretrained(folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(script))
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    serving.start()
    address = ServerAddress(False, "127.0.0.1", server.server_port)
    engine = ServedVllmEngine(
        VllmServer(address), folder, torch.float32, open_store(ram_bytes=1, codec="raw"), Digests(None)
    )
    try:
        yield engine
    finally:
        engine.close()
        if script.held is not None:
            script.held.set()
        server.shutdown()
        serving.join()
        server.server_close()
