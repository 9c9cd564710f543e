"""What documents show is done as it stands there: by bash, or as Python in this process; and what is printed compared.

A block is a fence with its language. `bash` is a script, `console` has commands behind `$ ` and what each printed,
`python` is executed, and `json` or `text` behind one of them is what that printed. A comment above a fence says what is
not done: `<!-- not run: WHY -->`, or `<!-- run by FILE -->` of the tests. Of what is shown, numbers, ids and units may
be others, and `…` stands for anything, alone in a line for any lines; but not below `<!-- exactly -->`.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from tests.waiting import wait_until

ROOT = Path(__file__).parents[1]
ADDRESS = "http://127.0.0.1:8000"
HOME = "/home/me"
PATIENCE_S = 300
ENDING_S = 60
BLOCK = re.compile(r"(?:^<!-- ([^\n]+) -->\n)?^```(bash|console|python|json|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXACTLY = "exactly"
SKIPPED = re.compile(r"(not run|run by):? (.+)")
# Ids that later blocks name: "the job" is the last one that was told.
NAMED = re.compile(r'"id":\s*"([^"]+)",\s*"object":\s*"(job|context_cache|conversation)"')
VARIABLES = {"job": "JOB", "context_cache": "CACHE", "conversation": "CONVERSATION"}
EVENT = re.compile(r"^id: (\S+)$", re.MULTILINE)
READY = ["curl", "--silent", "--retry", "60", "--retry-delay", "1"]
# Those that go on, and how each tells where it is.
SERVERS = {"serve": re.compile(r"http://\S+(?=/v1 · )"), "ui": re.compile(r"(?<=The chat is at )http://\S+")}
# What differs from run to run, and what may stand there.
VARYING = (
    (r"rk-[\w-]+", r"rk-[\w-]+"),
    (r"\b(?=\w*\d)[0-9a-f]{10,}\b", r"[0-9a-f]+"),
    (r"\d[\d,.:]*", r"\d[\d,.:]*"),
    (r"\b(?:[KMGT]i)?B\b", r"(?:[KMGT]i)?B"),
    ("…", ".*"),
    (" +", " +"),
    ("[─-]{4,}", "[─-]+"),
)
VARIES = re.compile("|".join(f"({shown})" for shown, _ in VARYING))
RAGCACHE = f"""#!/bin/sh
exec {shlex.quote(sys.executable)} -c 'from app.cli import main; main()' "$@"
"""


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    mark: str = ""

    @property
    def skipped(self) -> bool:
        return SKIPPED.fullmatch(self.mark) is not None

    @property
    def steps(self) -> Iterator[tuple[str, str]]:
        """Of a console: commands, each with what it printed. A command goes on behind a backslash, or in quotes."""
        command, printed = "", ""
        for line in self.text.splitlines(keepends=True):
            if command and not _whole(command):
                command += line
            elif line.startswith("$ "):
                if command:
                    yield command, printed
                command, printed = line[2:], ""
            else:
                printed += line
        if command:
            yield command, printed


def _whole(command: str) -> bool:
    try:
        shlex.split(command)
    except ValueError:
        return False
    return not command.endswith("\\\n")


def blocks(text: str) -> list[Block]:
    return [Block(language, shown, mark) for mark, language, shown in BLOCK.findall(text)]


@dataclass
class Shell:
    """One that remembers what it exported and where it is. Its server goes on until it ends, or serves again."""

    home: Path
    folder: Path  # where it begins
    address: str = ADDRESS
    environment: dict[str, str] = field(default_factory=dict)
    told: str = ""
    server: subprocess.Popen[bytes] | None = None
    _started: tuple[str, dict[str, str]] | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        # curl says nothing of its own, and ends what it prints with a line.
        (self.home / ".curlrc").write_text('silent\nshow-error\nwrite-out = "\\n"\n')
        program = self.home / "bin" / "ragcache"
        program.parent.mkdir(exist_ok=True)
        program.write_text(RAGCACHE)
        program.chmod(0o755)
        self.begin()

    def begin(self) -> None:
        """As a new terminal does."""
        path = f"{self.home / 'bin'}:{Path(sys.executable).parent}:/usr/bin:/bin"
        # Lines come in the order in which a terminal has them.
        python = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        self._state = {"HOME": str(self.home), "PATH": path, **python, **self.environment}
        self._place = str(self.folder)

    def run(self, script: str, *, fails: bool = False) -> str:
        """What it prints, also to stderr."""
        after = self.home / ".shell"
        script = f"{script.rstrip()}\n{{ pwd; env -0; }} > {shlex.quote(str(after))}\n"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script.replace(ADDRESS, self.address)],
            cwd=self._place,
            env=self._state,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
        )
        assert (done.returncode != 0) == fails, f"{script}\n{done.stdout}"
        self.told = done.stdout
        if not fails:
            place, _, state = after.read_text().partition("\n")
            self._place, self._state = place, dict(one.split("=", 1) for one in state.split("\0") if one)
        self._state |= {VARIABLES[kind]: name for name, kind in NAMED.findall(self.told)}
        if mark := EVENT.search(self.told):
            self._state["EVENT"] = mark[1]
        return self.told

    def console(self, block: Block) -> None:
        for command, printed in block.steps:
            if found := re.match(r"ragcache (serve|ui)\b(?! .*--check)", command):
                told = self.serve(command, SERVERS[found[1]])
            else:
                told = self.run(command, fails=printed.lower().startswith(("error", "✗")))
            if block.mark == EXACTLY:
                assert told == printed
            elif printed.strip():
                check_printed(printed, told.replace(str(self.home), HOME).replace(self.address, ADDRESS))

    def serve(self, command: str, told: re.Pattern[str]) -> str:
        """What it told so far, from where it tells its address. One that runs and was started alike is that server."""
        started = (command, {name: value for name, value in self._state.items() if name.startswith("RAGCACHE_")})
        log = self.home / "server.log"
        if self.server is None or self._started != started:
            self.end()
            self._started = started
            state = {**self._state, "RAGCACHE_SERVE_PORT": "0", "RAGCACHE_UI_PORT": "0"}
            with log.open("wb") as out:
                self.server = subprocess.Popen(
                    ["bash", "-c", f"exec {command}"], cwd=self._place, env=state, stdout=out, stderr=out
                )
            wait_until(lambda: told.search(log.read_text()) or self._ended(), PATIENCE_S, log.read_text)
            found = told.search(log.read_text())
            assert found is not None, log.read_text()
            self.address = found[0]
            # Where it has keys, it tells nobody without one whether it is ready.
            subprocess.run([*READY, f"{self.address}/ready"], check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL)
        return log.read_text()

    def _ended(self) -> bool:
        return self.server is not None and self.server.poll() is not None

    def end(self) -> None:
        if self.server is not None:
            self.server.terminate()
            self.server.wait(ENDING_S)
            self.server, self.address = None, ADDRESS


def run_blocks(name: str, found: list[Block], shell: Shell, names: dict[str, Any]) -> None:
    """In their order. `names` are those of Python, which later blocks go on with."""
    for place, block in enumerate(found):
        if block.skipped:
            continue
        shown = next((one for one in found[place + 1 : place + 2] if one.language in ("json", "text")), None)
        told = ""
        if block.language == "python":
            with redirect_stdout(StringIO()) as out:
                exec(compile(block.text.replace(ADDRESS, shell.address), f"{name}, block {place}", "exec"), names)
            told = out.getvalue().replace(str(shell.home), HOME)
        elif block.language == "bash":
            told = shell.run(block.text).replace(str(shell.home), HOME)
            if shown is None:
                assert '"error":{' not in told and "event: error" not in told, told
        elif block.language == "console":
            shell.console(block)
            continue
        else:
            continue
        if shown is not None and shown.language == "json":
            check_shown(json.loads(shown.text), json.loads(told.strip().splitlines()[-1]))
        elif shown is not None:
            check_printed(shown.text, told)


def pattern_of(printed: str) -> re.Pattern[str]:
    return re.compile("^" + "".join(map(_line, printed.rstrip("\n").splitlines())), re.MULTILINE)


def _line(shown: str) -> str:
    if shown.strip() == "…":
        return r"(?:[^\n]*\n)*?"
    parts, end = [], 0
    for found in VARIES.finditer(shown.rstrip()):
        assert found.lastindex is not None
        parts += [re.escape(shown[end : found.start()]), VARYING[found.lastindex - 1][1]]
        end = found.end()
    return "".join([*parts, re.escape(shown.rstrip()[end:]), r" *\n"])


def check_printed(printed: str, told: str) -> None:
    """Lines that were printed and are not shown stand before and behind those that are."""
    found = pattern_of(printed).search(told if told.endswith("\n") else told + "\n")
    assert found, f"shown is\n{printed}\nand told was\n{told}"


def check_shown(shown: Any, told: Any) -> None:
    """Fields may be left out of what is shown, and none may be in it that is not told."""
    if isinstance(shown, dict):
        assert isinstance(told, dict)
        assert set(shown) <= set(told), f"{sorted(shown)} are shown, and told are {sorted(told)}"
        for name, value in shown.items():
            check_shown(value, told[name])
    elif isinstance(shown, list):
        assert isinstance(told, list)
        for one in shown:
            check_shown(one, told[0])
    elif isinstance(shown, str) and "…" not in shown:
        assert told == shown
    elif shown is not None:
        assert isinstance(told, type(shown))
