"""Which files are found, in which order, and what is told of the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.loaders.discovery import WalkTally, discover


def grown(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("words")
    return root


def found(root: Path, *globs: str, tally: WalkTally | None = None) -> list[str]:
    return [path.relative_to(root).as_posix() for path in discover([root], globs, tally)]


def test_folders_are_walked_in_order_without_hidden_and_unknown(tmp_path: Path) -> None:
    names = ["b.txt", "a/z.md", "a/é.md", "a/b/c.pdf", "B.txt", ".git/x.txt", "a/.hidden.txt", "x.bin", "noname"]
    tally = WalkTally()
    assert found(grown(tmp_path, *names), tally=tally) == ["B.txt", "a/b/c.pdf", "a/z.md", "a/é.md", "b.txt"]
    assert (tally.hidden, tally.unknown, tally.problems) == (2, {".bin": 1, "": 1}, [])


def test_files_without_a_suffix_are_found_by_their_names(tmp_path: Path) -> None:
    names = ["LICENSE-MIT", "Makefile", "README", "a/Dockerfile", "a/changelog"]
    tally = WalkTally()
    assert found(grown(tmp_path, *names, "a/readme.bin", "a/readmes", "a/data"), tally=tally) == names
    assert tally.unknown == {".bin": 1, "": 2}


def test_names_of_texts_that_other_files_have_too(tmp_path: Path) -> None:
    """Browsers keep a database under the name of one, and build systems a program."""
    grown(tmp_path, "HISTORY", "INSTALL-de", "NEWS", "a/History", "a/install", "a/news")
    (tmp_path / "Makefile").write_bytes(b"\x7fELF\2\1\1" + bytes(99))
    (tmp_path / "TODO").write_bytes(b"odd\0\1\2")
    (tmp_path / "README").write_bytes("Größe und mehr".encode("utf-16"))
    (tmp_path / "FAQ").write_bytes(("Größe und mehr " * 9).encode("utf-16-be"))
    os.mkfifo(tmp_path / "AUTHORS")
    tally = WalkTally()
    names = ["AUTHORS", "FAQ", "HISTORY", "INSTALL-de", "NEWS", "README"]
    assert found(tmp_path, tally=tally) == names
    assert (tally.unknown, tally.problems) == ({"": 5}, [])


@pytest.mark.parametrize(
    ("globs", "names"),
    [
        (["*.md"], ["a.md", "d/b.md", "d/e/c.md"]),
        (["*.md", "*.txt"], ["a.md", "a.txt", "d/b.md", "d/e/c.md"]),
        (["d/*.md"], ["d/b.md"]),
        (["d/**/*.md"], ["d/b.md", "d/e/c.md"]),
        (["**/[bc].md"], ["d/b.md", "d/e/c.md"]),
        (["[!a].md"], ["d/b.md", "d/e/c.md"]),
        (["?.txt"], ["a.txt"]),
        (["[a-b].md"], ["a.md", "d/b.md"]),
        (["*.(md)"], []),
    ],
)
def test_several_patterns_choose(globs: list[str], names: list[str], tmp_path: Path) -> None:
    tally = WalkTally()
    assert found(grown(tmp_path, "a.md", "a.txt", "d/b.md", "d/e/c.md"), *globs, tally=tally) == names
    assert tally.unmatched == 4 - len(names)


def test_what_is_named_is_given_whatever_it_is(tmp_path: Path) -> None:
    root = grown(tmp_path, "a.bin", ".hidden/b.txt")
    named = [root / "a.bin", root / "gone.txt", root / ".hidden", root / "a.bin"]
    assert list(discover(named, ["*.txt"])) == [root / "a.bin", root / "gone.txt", root / ".hidden" / "b.txt"]


def test_links_are_followed_once_and_loops_end(tmp_path: Path) -> None:
    root = grown(tmp_path / "root", "d/a.txt")
    grown(tmp_path / "other", "deep/b.txt")
    (root / "a_copy.txt").symlink_to(root / "d" / "a.txt")
    (root / "d" / "up").symlink_to(root)
    (root / "d" / "self").symlink_to("self")
    (root / "dead.txt").symlink_to("nothing")
    (root / "other").symlink_to(tmp_path / "other")
    tally = WalkTally()
    assert found(root, tally=tally) == ["d/a.txt", "other/deep/b.txt"]
    assert tally.repeated == 2
    assert sorted(error.path.name for error in tally.problems) == ["dead.txt", "self"]
    assert all("leads nowhere" in error.reason for error in tally.problems)


def test_overlapping_paths_give_each_file_once(tmp_path: Path) -> None:
    root = grown(tmp_path, "a/b.txt", "c.txt")
    assert list(discover([root / "a", root, root / "a" / "b.txt"])) == [root / "a" / "b.txt", root / "c.txt"]


def test_an_unreadable_folder_is_told_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs this may be root, whom no permission stops; a folder that vanishes is refused to anyone."""
    root = grown(tmp_path, "a/b.txt", "c.txt", "z/d.txt")
    tally = WalkTally()
    walk = discover([root], tally=tally)
    assert next(walk) == root / "a" / "b.txt"
    (root / "z" / "d.txt").unlink()
    (root / "z").rmdir()
    assert list(walk) == [root / "c.txt"]
    assert [error.path for error in tally.problems] == [root / "z"]
    assert "cannot be listed" in tally.problems[0].reason


def test_deep_folders_and_strange_names(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d"] * 200)
    deep.mkdir(parents=True)
    names = ["line\nbreak.txt", os.fsdecode(b"caf\xe9.txt"), "😀.txt"]
    for name in names:
        (deep / name).write_text("words")
    assert sorted(path.name for path in discover([tmp_path])) == sorted(names)


def test_the_order_does_not_depend_on_the_disk(tmp_path: Path) -> None:
    first = grown(tmp_path / "1", *(f"{name}.txt" for name in "cabd"))
    second = grown(tmp_path / "2", *(f"{name}.txt" for name in "dbac"))
    assert found(first) == found(second) == ["a.txt", "b.txt", "c.txt", "d.txt"]


def test_folders_of_the_program_are_left_out_whatever_leads_to_them(tmp_path: Path) -> None:
    root = grown(
        tmp_path / "home", "a.txt", ".data/index/vectors.json", "data/index/vectors.json", "data/documents/b.txt"
    )
    outside = grown(tmp_path / "cache", "kv/info.json")
    (root / "link").symlink_to(outside)
    (root / "deep").symlink_to(outside / "kv")
    (root / "file.json").symlink_to(root / "data" / "index" / "vectors.json")
    tally = WalkTally()
    own = [root / "data", outside]
    assert list(discover([root], tally=tally, own=own)) == [root / "a.txt"]
    assert sorted(path.name for path in tally.own) == ["data", "deep", "file.json", "link"]
    # What was put there on purpose, and is named, is read.
    documents = root / "data" / "documents"
    (documents / "c.txt").symlink_to("b.txt")
    assert list(discover([documents], own=own)) == [documents / "b.txt"]
    assert list(discover([root / "data"], own=own)) == []
