"""What a document shows wrongly is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.shown import Block, Shell, blocks, check_printed, check_shown, run_blocks


@pytest.mark.parametrize(
    ("shown", "told"), [({"a": 1}, {}), ({"a": "x"}, {"a": "y"}), ({"a": 1}, {"a": "1"}), ([{"a": 1}], [{"b": 1}])]
)
def test_what_is_shown_wrongly_would_be_seen(shown: Any, told: Any) -> None:
    with pytest.raises(AssertionError):
        check_shown(shown, told)


def test_numbers_ids_and_what_is_left_out_may_differ() -> None:
    told = "a note\nadded 3 (21 chunks, 75.3 MiB)\nkey 6b1a6c858ec4: good\none\ntwo\nThe end of it.\n"
    check_printed("added 12 (4 chunks,  7 B)\n", told)
    check_printed("key deadbeef0000: good\n…\nThe end …\n", told)
    for wrong in ("added many", "added 3 (21 chunks, 75.3 GB)", "key x: good", "one\nThe end of it.", "The end"):
        with pytest.raises(AssertionError):
            check_printed(wrong, told)


def test_commands_and_what_they_printed() -> None:
    text = "$ echo 'a\nb' \\\n  c\na\n$ true\n"
    assert [*Block("console", text).steps] == [("echo 'a\nb' \\\n  c\n", "a\n"), ("true\n", "")]


def test_a_terminal_remembers(tmp_path: Path) -> None:
    text = """
```console
$ export GREETING='good day' && mkdir there && cd there
$ echo "$GREETING" > said
```

```bash
cat said; pwd
```

```text
good day
/home/me/there
```

<!-- not run: it would end the test -->
```console
$ exit 1
```

```python
print(3 * "ab")
```

```text
ababab
```
"""
    run_blocks("here", blocks(text), Shell(tmp_path, tmp_path), {})
    for wrong in (text.replace("ababab", "ab"), text.replace("/there", "/here"), text.replace("good day\n/", "bad\n/")):
        with pytest.raises(AssertionError):
            run_blocks("here", blocks(wrong.replace("mkdir there", "mkdir -p there")), Shell(tmp_path, tmp_path), {})


def test_a_command_that_fails_is_shown_to_fail(tmp_path: Path) -> None:
    shell = Shell(tmp_path, tmp_path)
    shell.console(Block("console", "$ echo error: so it is >&2; false\nerror: so it is\n"))
    for wrong in ("$ false\n", "$ echo error: no\nerror: no\n"):
        with pytest.raises(AssertionError):
            shell.console(Block("console", wrong))
