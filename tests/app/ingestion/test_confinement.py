"""A reading process takes no more than it may, and does not outlive whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.ingestion.readers import Readers
from app.ingestion.survey import Pending
from app.ingestion.worker import Outcome, ReadFile, Unread, memory_for
from app.loaders.base import ParseLimits
from app.loaders.confinement import LEAST_MEMORY
from tests.app.loaders.files import write_mixed_folder

# A pattern that takes for ever, in one call into C that holds the lock of Python all the time.
FOR_EVER = "import re; re.fullmatch('(a+)+', 'a' * 100 + 'b')"
CHILD = f"""
import sys
from app.loaders.confinement import confine
confine(int(sys.argv[1]), 1 << 32)
print("confined", flush=True)
{FOR_EVER}
"""
PARENT = f"""
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}, str(os.getpid())])
child.wait()
"""

NEAR_THE_LIMIT = """
import resource, sys
from pathlib import Path
from app.ingestion import worker
_, most = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (1 << 32, most))
for status in sys.argv[1:]:
    worker.STATUS = Path(status)
    print(worker.near_the_limit())
"""


def read(path: Path, limits: ParseLimits | None = None) -> Outcome:
    with Readers(1, limits) as readers:
        ((_, outcome),) = readers.read([Pending(str(path), path.stat().st_size, None)])
    return outcome


def test_a_reader_ends_with_its_parent_also_amid_a_pattern() -> None:
    # Both write to one pipe, which ends when the last of them has ended.
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as told:
        with subprocess.Popen([sys.executable, "-c", PARENT], stdout=writing) as parent:
            os.close(writing)
            assert told.readline() == b"confined\n"
            parent.send_signal(signal.SIGKILL)
        assert told.read() == b""


def test_a_reader_whose_parent_has_ended_already_does_not_begin() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD, "1"], stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


def test_a_reader_is_started_with_its_parent_and_its_memory(tmp_path: Path) -> None:
    """What the two tests above show holds for what reads files."""
    write_mixed_folder(tmp_path)
    with Readers(1) as readers:
        ((_, outcome),) = readers.read([Pending(str(tmp_path / "notes.txt"), 1, None)])
        (process,) = readers._all
        limits = Path(f"/proc/{process._child.pid}/limits").read_text()
        assert f"Max address space         {process.memory} " in limits
        assert process._child.args[-2:] == [str(os.getpid()), str(process.memory)]  # type: ignore[index]
    assert isinstance(outcome, ReadFile)


@pytest.mark.slow
def test_memory_above_the_bound_is_told_and_costs_one_file(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" + "[],[{}]," * 6_000_000 + "1]")
    outcome = read(path, ParseLimits(max_memory=LEAST_MEMORY // 2))
    assert isinstance(outcome, Unread)
    assert "needs more memory to be read than the 512.0 MiB that it may take: split it" in outcome.reason


def test_time_above_the_bound_ends_a_process_that_nobody_waits_for() -> None:
    confined = f"from app.loaders.confinement import confine_time; confine_time(0); {FOR_EVER}"
    assert subprocess.run([sys.executable, "-c", confined], check=False).returncode == -signal.SIGXCPU


def test_memory_that_the_system_tells_in_part_or_not_at_all_is_no_fault(tmp_path: Path) -> None:
    """gVisor tells no peak; a sandbox may have no /proc."""
    small, large = f"{1 << 19} kB", f"{1 << 22} kB"
    told = {
        f"VmPeak:\t{large}\nVmSize:\t{small}\n": True,
        f"Name:\tréader\nVmSize:\t {large}\nVmRSS:\t{small}\n": True,
        f"VmSize:\t{small}\nVmRSS:\t{small}\n": False,
        "State:\tR (running)\n": False,
    }
    files = [tmp_path / str(number) for number in range(len(told))]
    for file, text in zip(files, told, strict=True):
        file.write_text(text)
    command = [sys.executable, "-c", NEAR_THE_LIMIT, *map(str, files), str(tmp_path / "missing")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [*map(str, told.values()), "False"], done.stderr


def test_all_readers_together_take_half_of_the_machine() -> None:
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert memory_for(1 << 60, 2) == physical // 4
    assert memory_for(1 << 60, 1 << 40) == LEAST_MEMORY
    assert memory_for(123, 1) == 123


@pytest.mark.slow
def test_honest_large_files_pass(tmp_path: Path) -> None:
    """As large as the issue asks for, with characters that take most memory."""
    path = tmp_path / "large.txt"
    path.write_text("Ein Satz mit Umlauten: äöü und 𝄞. " * 2_600_000, encoding="utf-8")
    assert path.stat().st_size > 100_000_000
    assert isinstance(read(path), ReadFile)
