"""Where a citation stands, for people."""

from __future__ import annotations

import pytest

from app.captions import place


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (["/a/2023/report.pdf", "/a/2024/report.pdf"], ["2023/report.pdf", "2024/report.pdf"]),
        (["/a/2023/report.pdf", "/a/2024/other.pdf"], ["report.pdf", "other.pdf"]),
        (["/x/a/q/r.md", "/x/b/q/r.md", "/x/b/r.md"], ["a/q/r.md", "b/q/r.md", "b/r.md"]),
        (["/r.md", "/x/r.md"], ["r.md", "x/r.md"]),
        (["upload:/r.md", "/docs/r.md"], ["upload:/r.md", "docs/r.md"]),
        (["https://a.org/r", "https://b.org/r"], ["a.org/r", "b.org/r"]),
        (["/a/r.md", "/a/r.md"], ["r.md", "r.md"]),
        (["node", ""], ["node", "."]),
    ],
)
def test_documents_of_one_name_are_told_apart(sources: list[str], expected: list[str]) -> None:
    told = [place(one, (), (), sources) for one in sources]
    assert told == expected
    assert [place(one, (), ((3, "page"),), sources) for one in sources] == [f"{one}, page 3" for one in told]


def test_alone_a_file_is_told_by_its_name() -> None:
    assert place("/a/2023/report.pdf", ("Sums", "Tax"), ()) == "report.pdf, Sums > Tax"
