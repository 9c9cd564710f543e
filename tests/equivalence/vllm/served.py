"""vLLM's own server with our connector, as users start it."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ragcache.cache import ChunkCache
from ragcache.engine.vllm.checks import WORKER
from ragcache.engine.vllm.requests import KEY, link_params
from ragcache.types import Segment
from tests.ports import held_port
from tests.waiting import wait_until

CONNECTOR = "ragcache.engine.vllm.connector.RagcacheConnector"
ROOT = Path(__file__).parents[3]
PATIENCE_S = 600.0  # a server starts in half a minute, where nothing else runs


class Server:
    """A process of its own, with a worker process of its own."""

    def __init__(
        self,
        model: Path,
        store: Path,
        log: Path,
        port: int,
        linking: dict[str, Any],
        connector: str,
        flags: dict[str, Any],
    ):
        self.model, self.store, self.log, self.port = model, store, log, port
        module, name = connector.rsplit(".", 1)
        transfer = {
            "kv_connector": name,
            "kv_connector_module_path": module,
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {
                "store": str(store),
                "codec": "raw",
                "link_when": "always",
                "load_timeout_s": PATIENCE_S,
                **linking,
            },
        }
        named = {
            "host": "127.0.0.1", "port": port, "dtype": "float32", "max-model-len": 512, "block-size": 32,
            "kv-cache-memory-bytes": 64_000_000, "worker-cls": WORKER, "kv-transfer-config": json.dumps(transfer),
        } | flags  # fmt: skip
        command = [str(Path(sys.executable).with_name("vllm")), "serve", str(model), "--enforce-eager"]
        for name, value in named.items():
            command += [f"--{name}"] if value is True else [f"--{name}", str(value)]
        # vllm is started by its script, which finds what is installed; a test's own connector is not.
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(command, env=environment, stdout=log.open("wb"), stderr=subprocess.STDOUT)

    def ready(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(self.log.read_text()[-4000:])
        try:
            return self.get("/health").status == 200
        except ConnectionError:
            return False

    def get(self, path: str) -> http.client.HTTPResponse:
        return self.request("GET", path, None)[1]

    def request(self, method: str, path: str, body: Any) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = self.sent(method, path, body)
        return connection, connection.getresponse()

    def sent(self, method: str, path: str, body: Any) -> http.client.HTTPConnection:
        """Without waiting for anything to come."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        headers = {"Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        return connection

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        connection, response = self.request("POST", path, {"model": str(self.model), "temperature": 0, **body})
        with closing(connection):
            told: dict[str, Any] = json.load(response)
        assert response.status == 200, told
        return told

    def stream(self, path: str, **body: Any) -> list[dict[str, Any]]:
        """All events of a stream."""
        asked = {"model": str(self.model), "temperature": 0, "stream": True, **body}
        connection, response = self.request("POST", path, asked)
        with closing(connection):
            text = response.read()
        assert response.status == 200, text
        lines = [line.removeprefix(b"data: ") for line in text.splitlines() if line.startswith(b"data: ")]
        return [json.loads(line) for line in lines if line != b"[DONE]"]

    def complete(
        self, segments: Sequence[Segment], params: Any, tokens: int, **more: Any
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        return self.request("POST", "/v1/completions", self.body(segments, params, tokens, **more))

    def body(self, segments: Sequence[Segment], params: Any, tokens: int, **more: Any) -> dict[str, Any]:
        """Of a completion."""
        return {
            "model": str(self.model), "prompt": [token for segment in segments for token in segment.ids],
            "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "detokenize": False, "return_token_ids": True,
            "kv_transfer_params": params, **more,
        }  # fmt: skip

    def answer(self, segments: Sequence[Segment], params: Any, tokens: int = 12) -> tuple[list[int], dict[str, Any]]:
        connection, response = self.complete(segments, params, tokens)
        with closing(connection):
            assert response.status == 200, response.read()
            told = json.load(response)
        return told["choices"][0]["token_ids"], told["kv_transfer_params"][KEY]

    def metrics(self) -> dict[str, float]:
        lines = self.get("/metrics").read().decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}

    def metric(self, name: str) -> float:
        return sum(value for line, value in self.metrics().items() if line.startswith(name))


def check_alike(server: Server, cache: ChunkCache, prompt: list[Segment], linker: str) -> None:
    """The server's answer is the torch engine's, from as many tokens of each kind."""
    tokens, told = server.answer(prompt, link_params(prompt, linker))
    theirs = cache.generate(prompt, max_tokens=12, linker=linker)
    assert tokens == list(theirs)
    # What a probe costs beside is each engine's own.
    counts = ("reused", "repaired", "computed")
    assert [told[count] for count in counts] == [getattr(theirs.report, count) for count in counts]
    assert told["incidents"] == []


@contextmanager
def serving(
    model: Path, folder: Path, *, connector: str = CONNECTOR, linking: dict[str, Any] | None = None, **flags: Any
) -> Iterator[Server]:
    """`linking`: of LinkSettings, and `flags`: of vLLM, beside or instead of those that the tests share."""
    with held_port() as port:
        started = Server(model, folder / "kv", folder / "log", port, linking or {}, connector, flags)
        try:
            wait_until(started.ready, PATIENCE_S, lambda: started.log.read_text()[-4000:])
            yield started
        finally:
            started.process.terminate()
            started.process.wait()
