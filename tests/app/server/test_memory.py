"""What libraries keep for shapes and threads of the past, in processes of their own: it is decided once in each. glibc
tells it from 2.33 on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.server.memory import BOUNDS

ROOT = Path(__file__).parents[3]
GROWN = """
import ctypes, json, threading
from app.server.memory import bound_libraries
if {bound}:
    bound_libraries()
import torch

names = "arena ordblks smblks hblks hblkhd usmblks fsmblks used free top".split()

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in names]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
libc.fopen.restype, libc.fopen.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_char_p]
libc.malloc_info.argtypes, libc.fclose.argtypes = [ctypes.c_int, ctypes.c_void_p], [ctypes.c_void_p]
weight = torch.ops.mkldnn._reorder_linear_weight(torch.ones(128, 128), 16)

def multiply(rows):
    torch.ops.mkldnn._linear_pointwise(torch.ones(rows, 128), weight, None, "none", [], "")

def all_at_once():
    together.wait()
    multiply(1)
    together.wait()

with torch.inference_mode():
    multiply(1)
    before = libc.mallinfo2().used
    for rows in range(2, 600):
        multiply(rows)
grown = libc.mallinfo2().used - before
together = threading.Barrier(12)
threads = [threading.Thread(target=all_at_once) for _ in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
file = libc.fopen({told!r}.encode(), b"w")
libc.malloc_info(0, file)
libc.fclose(file)
print(json.dumps([grown, open({told!r}).read().count("<heap nr=")]))
"""
ASKED = """
from app.server.memory import bound_libraries
bound_libraries()
import os
print(os.environ["MALLOC_ARENA_MAX"], os.environ["LRU_CACHE_CAPACITY"])
"""


def ran(code: str, **given: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in BOUNDS}
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, cwd=ROOT, env=kept | given, capture_output=True, text=True, check=True, timeout=250)
    return found.stdout


def grown(folder: Path, *, bound: bool) -> tuple[int, int]:
    """Bytes that are kept after passes of many lengths, and arenas behind a dozen threads."""
    kept, arenas = json.loads(ran(GROWN.format(bound=bound, told=str(folder / "told"))))
    return kept, arenas


@pytest.mark.slow
def test_lengths_and_threads_of_the_past_take_little(tmp_path: Path) -> None:
    unbound, many = grown(tmp_path, bound=False)
    bound, few = grown(tmp_path, bound=True)
    assert bound < unbound / 3
    assert few <= int(BOUNDS["MALLOC_ARENA_MAX"]) < many


def test_what_the_operator_chose_stays() -> None:
    assert ran(ASKED, MALLOC_ARENA_MAX="7").split() == ["7", BOUNDS["LRU_CACHE_CAPACITY"]]
