"""A real S3 server on the loopback, and a proxy before it that is as far and as bad as a network may be."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from urllib.error import URLError

from tests.ports import held_port
from tests.waiting import wait_until

LATENCY_S = 0.05
_REQUEST = re.compile(rb"(GET|PUT|POST|DELETE|HEAD) (\S+) HTTP/1.1\r\n")
_ANSWERS = {
    status: f"HTTP/1.1 {status} {told}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
    for status, told in (("403", "Forbidden"), ("500", "Internal Server Error"))
}
Fault = str  # reset, 403, 500, truncated or stall


@dataclass(frozen=True)
class S3Bucket:
    """A new one, empty. `environment`: the provider's usual variables."""

    url: str
    environment: dict[str, str]


@contextmanager
def s3_server() -> Iterator[int]:
    """Its port."""
    with held_port() as port:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: _answers(port), 60, lambda: f"moto answers nothing: {server.poll()}")
            yield port
        finally:
            server.terminate()
            server.wait(30)


def _answers(port: int) -> bool:
    with suppress(URLError, OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def new_bucket(server: int, through: int | None = None) -> S3Bucket:
    """On the server, reached by a proxy's port."""
    name = f"bucket-{uuid.uuid4().hex}"
    request = urllib.request.Request(f"http://127.0.0.1:{server}/{name}", method="PUT")
    urllib.request.urlopen(request, timeout=30).close()
    return S3Bucket(f"s3://{name}/kv", credentials(through or server))


def credentials(port: int) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }


class Proxy:
    """Before a server, a round trip away. `fault` says of each request (method and path) what becomes of it, or ""."""

    def __init__(self, server: int, latency_s: float = LATENCY_S):
        self.latency_s = latency_s
        self.fault: Callable[[str, str], Fault] = lambda method, path: ""
        self.requests: list[tuple[str, str]] = []
        self._server = server
        self._writers: list[asyncio.StreamWriter] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        listening = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop)
        self._listening = listening.result(30)
        self.port: int = self._listening.sockets[0].getsockname()[1]

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    async def _end(self) -> None:
        """Nothing is left open: neither by a task that was cancelled while it closed, nor behind bytes nobody reads."""
        for listening in self._listening.sockets:  # closed, it would leave what was accepted just now open for good
            self._loop.remove_reader(listening.fileno())
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:  # one that was accepted just now begins others
            await asyncio.sleep(0)  # so that each has begun: one that is cancelled before closes nothing
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._listening.close()
        for writer in self._writers:
            with suppress(AttributeError):  # asyncio aborts none that has closed once its last bytes were out
                writer.transport.abort()
        for writer in self._writers:
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            there = await asyncio.open_connection("127.0.0.1", self._server)
        except OSError:
            writer.close()
            return
        self._writers.append(there[1])
        fate = [""]  # of the request that is under way
        pumps = [
            asyncio.ensure_future(self._pump(reader, there[1], fate, writer)),
            asyncio.ensure_future(self._pump(there[0], writer, fate)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for one in (writer, there[1]):
                one.close()

    async def _pump(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        fate: list[str],
        client: asyncio.StreamWriter | None = None,
    ) -> None:
        """Half a round trip later, in the order of their coming. `client` is given where requests come by."""
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(256)
        sending = asyncio.ensure_future(_send(late, target))
        try:
            while data := await source.read(1 << 16):
                if client is not None and (asked := _REQUEST.match(data)):
                    method, path = asked[1].decode(), asked[2].decode()
                    self.requests.append((method, path))
                    fate[0] = self.fault(method, path)
                    if answer := _ANSWERS.get(fate[0]):
                        client.write(answer)
                        await client.drain()
                    if answer or fate[0] == "reset":
                        client.transport.abort() if fate[0] == "reset" else client.close()
                        return
                elif client is None and fate[0] == "truncated":
                    await late.put((monotonic(), data[: len(data) // 2]))
                    break
                if fate[0] == "stall":
                    await asyncio.sleep(3600)
                await late.put((monotonic() + self.latency_s / 2, data))
            await late.put((monotonic() + self.latency_s / 2, b""))
            await sending
        except ConnectionError:
            return
        finally:
            sending.cancel()


async def _send(late: asyncio.Queue[tuple[float, bytes]], target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while True:
            due, data = await late.get()
            if not data:
                return
            await asyncio.sleep(due - monotonic())
            target.write(data)
            await target.drain()


@contextmanager
def proxied(server: int, latency_s: float = LATENCY_S) -> Iterator[Proxy]:
    proxy = Proxy(server, latency_s)
    try:
        yield proxy
    finally:
        proxy.close()
