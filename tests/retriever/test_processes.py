"""An index that one process reads while another writes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.retriever.chunks import source_of
from tests.retriever.test_derived import INDEXES, everything, live, opened

ROOT = Path(__file__).parents[2]
CHILD = """
import sys
from pathlib import Path
from tests.retriever.chunks import source_of
from tests.retriever.test_derived import INDEXES
name, folder = sys.argv[1], Path(sys.argv[2])
for count in range(10, 200):
    index = INDEXES[name](folder)
    index.catch_up(source_of(count))
    index.save()
    print(count, flush=True)
"""


@pytest.mark.parametrize("name", ["vectors", "keywords"])
def test_readers_see_whole_files_while_another_process_writes(name: str, tmp_path: Path) -> None:
    """It is killed in the middle, and the reader goes on from what it has left."""
    command = [sys.executable, "-c", CHILD, name, str(tmp_path)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert child.stdout is not None
    source, written = source_of(400), 0
    for line in child.stdout:
        written = int(line)
        assert everything(opened(INDEXES[name], tmp_path, source)) == live(source)
        if written > 40:
            child.kill()
            break
    child.communicate()
    assert written > 40
    index = opened(INDEXES[name], tmp_path, source)
    assert everything(index) == live(source)
    index.save()
    assert len([path for path in tmp_path.iterdir() if not path.name.startswith(".")]) == 2
