"""`ragcache ui`: the chat in the browser, over a server that runs or one that it starts."""

from __future__ import annotations

import re
import signal
import sys
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, Queue
from time import monotonic
from types import FrameType
from typing import Annotated

import typer

from app.cli.children import ChildProgram
from app.cli.flags import Server, configured
from app.cli.serve_check import check_host
from app.client.address import NamedServer, find_server
from app.client.connection import ServerConnection, ServerError
from app.loaders.base import sendable_bytes
from app.server.process import bound, check_models
from app.settings import Settings, environment, variable
from ragcache.errors import ConfigError
from ragcache.server_address import is_loopback

LOOPBACK = "127.0.0.1"
EVERYWHERE = ("0.0.0.0", "::")
LOOK_S = 0.1
ENDING_S = 10.0  # beyond the grace that answers have
SERVING = re.compile(r"http://\S+(?=/v1 )")
DENIED = 401
MB = 1024**2
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FLAGS = ("engine", "model", "device", "dtype", "cache_dir", "data_dir")
Quiet = Annotated[bool, typer.Option("--no-browser", help="Open no browser; tell the address alone.")]


@configured("ui_host", "ui_port", "server", ..., *FLAGS)
def ui(settings: Settings, server: Server = None, no_browser: Quiet = False) -> None:
    """Open the chat in the browser. A server is started where none is named and none runs, and ends with the page."""
    folder = _page_folder()
    port = _free_port(settings.ui_host, settings.ui_port)
    named = find_server(server)
    ended: Queue[ChildProgram] = Queue()
    with _signals(), ExitStack() as children:
        asked = named or _running(settings) or _started(settings, ended, children)
        _check_keys(settings, asked)
        flags = ["--host", settings.ui_host, "--port", str(port)]
        flags += ["--upload-mb", str(max(1, sendable_bytes(settings.serve_upload_bytes) // MB))]
        # Who comes from another machine asks with a key of his own.
        key = asked.key if is_loopback(settings.ui_host) else None
        page = ChildProgram(
            "ui.__main__", flags, ended, environment=environment(server=asked.url, api_key=key), folder=folder
        )
        children.callback(page.end, ENDING_S)
        where = LOOPBACK if settings.ui_host in EVERYWHERE else settings.ui_host
        _wait(lambda: _answers(where, port, "/_stcore/health"), page, ended, "the page")
        url = f"http://{f'[{where}]' if ':' in where else where}:{port}"
        print(f"The chat is at {url} · Ctrl-C ends it", flush=True)
        if not no_browser and sys.stdout.isatty():
            _open(url)
        first = ended.get()
        raise ConfigError(f"{'the page' if first is page else 'the server'} ended: {first.reason}")


def _page_folder() -> Path:
    """Raises ConfigError where Streamlit is not installed."""
    found = find_spec("ui")
    if find_spec("streamlit") is None or found is None or found.origin is None:
        raise ConfigError("the page needs Streamlit, which is not installed: pip install 'ragcache-kv[ui]'")
    return Path(found.origin).parent


def _free_port(host: str, port: int) -> int:
    """The port itself, or one that is free for 0. Raises ConfigError where another program has it."""
    try:
        sockets = bound(host, port)
    except ConfigError as error:
        raise ConfigError(f"{error}: choose another by --port, or 0 for one that is free") from None
    found: int = sockets[0].getsockname()[1]
    for sock in sockets:
        sock.close()
    return found


@contextmanager
def _signals() -> Iterator[None]:
    """The first one ends the command, which ends its children in turn; a second one is the system's own."""

    def end(number: int, frame: FrameType | None) -> None:
        for one in SIGNALS:
            signal.signal(one, signal.SIG_DFL)
        raise typer.Exit(128 + number)

    before = {one: signal.signal(one, end) for one in SIGNALS}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _running(settings: Settings) -> NamedServer | None:
    """A server of ours where `ragcache serve` would be."""
    host = LOOPBACK if settings.serve_host in EVERYWHERE else settings.serve_host
    if not is_loopback(host) or settings.serve_port == 0:
        return None
    found = NamedServer(False, host, settings.serve_port, key=_key(settings))
    with suppress(ServerError):
        if ServerConnection(replace(found, key=None), patience_s=0).ask("GET", "health") == {"status": "alive"}:
            print(f"A server runs at {found.url}, and is asked.", flush=True)
            return found
    return None


def _started(settings: Settings, ended: Queue[ChildProgram], children: ExitStack) -> NamedServer:
    """A child that serves on the loopback and is ready. Raises ConfigError where it ends instead, or has no model."""
    check_host(settings, "ui_host")
    flags = {
        f"--{name.replace('_', '-')}": getattr(settings, name) for name in FLAGS if name in settings.model_fields_set
    }
    given = [part for flag, value in flags.items() for part in (flag, str(value))]
    started = monotonic()
    print("Starting a server, which loads the model …", flush=True)
    child = ChildProgram(
        "app.cli", ["serve", "--host", LOOPBACK, "--port", str(_port_of_server(settings)), *given], ended, sys.stderr
    )
    children.callback(child.end, settings.serve_grace_s + ENDING_S)
    found: list[NamedServer] = []

    def ready() -> bool:
        told = "\n".join([*child.lines])
        check_models(told)
        if not found and (where := SERVING.search(told)):
            found.append(NamedServer.read(where[0], _key(settings), "its address", variable("api_key"), ""))
        return bool(found) and _answers(found[0].host, found[0].port, "/ready")

    _wait(ready, child, ended, "the server")
    print(f"It is ready after {monotonic() - started:.0f} s.", flush=True)
    return found[0]


def _port_of_server(settings: Settings) -> int:
    """That of the settings, or one that is free where somebody else has it and nobody has chosen it."""
    try:
        return _free_port(LOOPBACK, settings.serve_port)
    except ConfigError:
        if "serve_port" in settings.model_fields_set:
            raise
        return 0


def _key(settings: Settings) -> str | None:
    return None if settings.api_key is None else settings.api_key.get_secret_value()


def _check_keys(settings: Settings, server: NamedServer) -> None:
    """Raises ConfigError where other machines would see a page whose server answers everybody."""
    if is_loopback(settings.ui_host):
        return
    try:
        ServerConnection(replace(server, key=None)).ask("GET", "v1", "models")
    except ServerError as error:
        if error.answered == DENIED:
            return
        raise
    raise ConfigError(
        f"{variable('ui_host')}={settings.ui_host!r} is open to other machines, and {server.url} asks nobody for a "
        "key: make one by `ragcache keys create`, or open the page on 127.0.0.1"
    )


def _wait(reached: Callable[[], bool], child: ChildProgram, ended: Queue[ChildProgram], name: str) -> None:
    """Look again and again. Raises ConfigError where a child ends before: this one, or one that it needs."""
    while not reached():
        with suppress(Empty):
            first = ended.get(timeout=LOOK_S)
            told = f"{name} ended while it started" if first is child else f"what {name} asks has ended"
            raise ConfigError(f"{told}: {first.reason}")


def _answers(host: str, port: int, path: str) -> bool:
    """Also where it wants a key first: the page asks for one, and waits for the models itself."""
    connection = HTTPConnection(host, port, timeout=ENDING_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status in (200, DENIED)
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _open(url: str) -> None:
    """In a browser with a window: one of the terminal would take its place."""
    with suppress(webbrowser.Error):
        browser = webbrowser.get()
        if type(browser) is not webbrowser.GenericBrowser:
            browser.open(url)
