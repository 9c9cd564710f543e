"""Somebody who asks the server, in a process of its own as clients are: in the server's he would keep its threads from
Python while he reads.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import httpx2

from ragcache.errors import ModelError

CHAT = "/v1/chat/completions"
PATIENCE_S = 600.0


class OtherProcess:
    def __init__(self, process: subprocess.Popen[str]):
        self._process = process

    def first_token(self, body: dict[str, Any]) -> float:
        """Seconds until the answer's first word, as he sees it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(body) + "\n")
        self._process.stdin.flush()
        if not (told := self._process.stdout.readline()):
            raise ModelError("no answer of the server: see above for why")
        return float(told)


@contextmanager
def beside(url: str) -> Iterator[OtherProcess]:
    command = [sys.executable, "-m", __name__, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield OtherProcess(process)
        assert process.stdin is not None
        process.stdin.close()  # which ends it


def asked(client: httpx2.Client, body: dict[str, Any]) -> float:
    started = perf_counter()
    with client.stream("POST", CHAT, json=body) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if line.startswith("data: {") and json.loads(line[6:])["choices"][0]["delta"].get("content"):
                return perf_counter() - started
    raise ModelError("an answer without a word: choose another model or text")


if __name__ == "__main__":
    with httpx2.Client(base_url=sys.argv[1], timeout=PATIENCE_S, trust_env=False) as own:
        for line in sys.stdin:
            print(asked(own, json.loads(line)), flush=True)
