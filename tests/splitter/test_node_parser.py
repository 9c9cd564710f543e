"""Node parsers of llama-index, real and strange ones, as splitters."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from splitter import SplitterError, make_splitter
from splitter.base import ChunkLimits, Embed, FastTokens, Splitter
from splitter.documents import KINDS
from tests.splitter.conftest import Words, letters
from tests.splitter.test_contract import BROKEN, HOSTILE

CORE = "llama_index.core.node_parser."
APART = ("SentenceSplitter:chunk_size=20,chunk_overlap=0", "TokenTextSplitter:chunk_size=12,chunk_overlap=0",
         "SentenceWindowNodeParser:window_size=2", "MarkdownNodeParser", "SemanticSplitterNodeParser")  # fmt: skip
SHARING = ("SentenceSplitter:chunk_size=20,chunk_overlap=6", "TokenTextSplitter:chunk_size=12,chunk_overlap=5")
STRANGE = "tests.splitter.parsers.Strange"
LIMITS = ChunkLimits(4, 24)
SAME = "The same words come again. "
TEXT = (
    f"# Café\r\nFirst sentence. Second one, 日本語 and \U0001f3f3\ufe0f.\r\n\r\n{SAME}\r\n\r\n{SAME}\u2028## Sub\r\n"
    + SAME * 30
    + "The end\n"
)


def make(spec: str, limits: ChunkLimits = LIMITS, embed: Embed | None = letters) -> Splitter:
    return make_splitter(spec if ":" not in spec and "." in spec else CORE + spec, Words(), embed, limits)


def strange(way: str) -> Splitter:
    return make_splitter(f"{STRANGE}:way={way}", Words(), letters, LIMITS)


def check(splitter: Splitter, text: str, kind: str = "prose", *, apart: bool = False) -> list[str]:
    pieces = splitter.split(text, kind)
    texts = [text[piece.start : piece.end] for piece in pieces]
    assert all(one and one == one.strip() and Words().count(one) <= LIMITS.max_tokens for one in texts)
    assert all(before.start < after.start and before.end < after.end for before, after in pairwise(pieces))
    assert not apart or all(before.end <= after.start for before, after in pairwise(pieces))
    held = {place for piece in pieces for place in range(piece.start, piece.end)}
    assert all(place in held or character.isspace() for place, character in enumerate(text))
    assert splitter.split(text, kind) == pieces
    return texts


@pytest.mark.parametrize("spec", APART)
def test_pieces_are_the_nodes(spec: str) -> None:
    assert len(check(make(spec), TEXT, apart=True)) > 5
    assert check(make(spec), "") == check(make(spec), " \r\n\u3000") == []
    assert check(make(spec), " One.\n") == ["One."]


@pytest.mark.parametrize("spec", SHARING)
def test_what_nodes_share_stays(spec: str) -> None:
    pieces = make(spec).split(TEXT)
    check(make(spec), TEXT)
    assert sum(after.start < before.end for before, after in pairwise(pieces)) > 3


@pytest.mark.parametrize("spec", [*APART, *SHARING])
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(text=BROKEN | HOSTILE, kind=st.sampled_from(KINDS))
@example(text="w " * 300, kind="prose")
@example(text="a. a. " * 100, kind="prose")
@example(text="\ud800 x", kind="prose")
def test_any_text_is_held_whole(spec: str, text: str, kind: str) -> None:
    check(make(spec), text, kind, apart=spec in APART)


def test_what_the_parser_counts_are_tokens_of_the_model(smollm2_tokens: FastTokens) -> None:
    spec = f"{CORE}SentenceSplitter:chunk_size=60,chunk_overlap=0"
    pieces = make_splitter(spec, smollm2_tokens, limits=ChunkLimits(8, 256)).split(SAME * 60)
    counts = [smollm2_tokens.count((SAME * 60)[piece.start : piece.end]) for piece in pieces]
    assert all(40 < count <= 60 for count in counts[:-1])


def test_small_nodes_stay_and_headings_cut() -> None:
    text = "# A\r\nOne.\r\n# B\r\nTwo.\r\n" + SAME * 9
    first, second, *rest = check(make("MarkdownNodeParser"), text, "markdown")
    assert (first, second.startswith("# B\r\nTwo.\r\n")) == ("# A\r\nOne.", True)
    assert rest


def test_our_embedding_says_where_meaning_turns() -> None:
    topics = [" ".join(f"{word} {word} {word}." for _ in range(5)) for word in ("apples", "boats", "clocks")]
    spec = "SemanticSplitterNodeParser:breakpoint_percentile_threshold=85,buffer_size=1"
    cut = check(make(spec), " ".join(topics))
    assert all(len({word.strip(".") for word in piece.split()}) <= 2 for piece in cut)
    with pytest.raises(SplitterError, match="SemanticSplitterNodeParser needs an embedding"):
        make(spec, embed=None)


@pytest.mark.parametrize("way", ["whole", "blank", "spaces", "inside"])
def test_blank_space_is_the_parser_s(way: str) -> None:
    check(strange(way), TEXT)


@pytest.mark.parametrize(
    ("way", "told"),
    {
        "nothing": "makes no nodes of this text",
        "upper": "changes this text in its node 1",
        "tail": "leaves some of this text out before its node 1",
        "head": "leaves the end of this text out",
        "gap": "leaves some of this text out before its node 2",
        "round": "leaves some of this text out before its node 1",
    }.items(),
)
def test_a_parser_that_changes_the_text_is_refused(way: str, told: str) -> None:
    with pytest.raises(SplitterError, match=rf"parsers.Strange {told}.*, so its nodes are no spans of it: choose"):
        strange(way).split(TEXT)


@pytest.mark.parametrize("name", ["HTMLNodeParser", "JSONNodeParser"])
def test_parsers_of_llama_index_that_change_the_text_are_refused(name: str) -> None:
    with pytest.raises(SplitterError, match=rf"^{CORE}{name} (changes|fails on|makes no nodes of) this text"):
        make(name).split("<h1>One</h1><p>Two <b>three</b>.</p>", "html")


@pytest.mark.parametrize(
    ("way", "told"),
    {
        "lookup": "KeyError: 'no such thing'$",
        "exit": "SystemExit: 0$",
        "exception": "Exception: boom$",
        "assertion": "AssertionError$",
        "stop": "StopIteration$",
        "pattern": r"(re.error|re.PatternError): missing \)$",
        "long": "ValueError: [x ]{480,500}…$",
        "text": "AttributeError",
        "none": "TypeError",
    }.items(),
)
def test_a_parser_that_fails_costs_its_text(way: str, told: str) -> None:
    with pytest.raises(SplitterError, match=f"Strange fails on this text: {told}") as raised:
        strange(way).split(TEXT)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(("way", "error"), [("key", KeyboardInterrupt), ("memory", MemoryError)])
def test_what_is_not_its_doing_goes_on(way: str, error: type[BaseException]) -> None:
    with pytest.raises(error):
        strange(way).split(TEXT)


MUTE = "raise type('Mute', (Exception,), {'__str__': lambda self: 1 / 0})"
MAKING = """
from llama_index.core.node_parser import NodeParser
class Parser(NodeParser):
    def __init__(self, **settings):
        {}
    def _parse_nodes(self, nodes, show_progress=False, **more):
        return nodes
"""


@pytest.mark.parametrize(
    "code", ["import sys; sys.exit(0)", "raise Exception('own')", "assert False", "raise StopIteration", MUTE]
)
@pytest.mark.parametrize(("whole", "told"), [("{}", "cannot import"), (MAKING, "cannot make")])
def test_a_module_that_fails_is_told_on_one_line(
    code: str, whole: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it raises: a SystemExit would end the program as if all was well."""
    name = f"foreign_{abs(hash((code, told)))}"
    (tmp_path / f"{name}.py").write_text(whole.format(code))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SplitterError, match=rf"^{told} the splitter {name}.Parser: ") as raised:
        make_splitter(f"{name}.Parser", Words(), letters, LIMITS)
    assert len(str(raised.value).splitlines()) == 1


def test_a_pattern_that_is_none_fails_where_it_is_used() -> None:
    spec = 'SentenceSplitter:chunk_size=10,chunk_overlap=0,secondary_chunking_regex="("'
    with pytest.raises(SplitterError, match=r"SentenceSplitter (fails on this text|.*): .*error: missing \)"):
        make(spec).split("word " * 300)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("__main__.Parser", "is no import path of a class: write package.module.Class"),
        ("unittest.__main__.Parser", "is no import path of a class"),
        ("./parser.py", "is no import path of a class"),
        ("tests.splitter.words", "tests.splitter.words is no splitter: it should be a class below"),
        ("os.path", "os.path is no splitter"),
        ("tests.splitter.words.Words", "is no splitter"),
        ("nowhere.to.Parser", "cannot import the splitter nowhere.to.Parser: ModuleNotFoundError"),
        (f"{CORE}Nope", "cannot import the splitter .*Nope: AttributeError"),
        (f"{CORE}TextSplitter", "TextSplitter is what parsers have in common"),
        (
            f"{CORE}SentenceSplitter:size=3",
            r"has no setting 'size' \(=3\): choose from chunk_overlap, chunk_size, para",
        ),
        (f"{CORE}MarkdownNodeParser:tokenizer=x", "has no setting 'tokenizer'"),
        (f"{CORE}SentenceSplitter:chunk_size=much", "cannot make the splitter .*SentenceSplitter: TypeError"),
        (f"{CORE}SentenceSplitter:chunk_size=9,chunk_overlap=10", "larger chunk overlap"),
        (f"{CORE}SentenceWindowNodeParser:window_size=none", "window_size: Input should be a valid integer"),
        (f"{CORE}HierarchicalNodeParser", "cannot make the splitter .*HierarchicalNodeParser"),
        (f"{CORE}MarkdownElementNodeParser", "MarkdownElementNodeParser asks a language model"),
        (f"{CORE}UnstructuredElementNodeParser", "asks a language model"),
        ("tests.splitter.parsers.Asking", "Asking asks a language model"),
    ],
)
def test_what_is_no_parser_is_told_on_one_line(spec: str, told: str) -> None:
    with pytest.raises(SplitterError, match=told) as raised:
        make_splitter(spec, Words(), letters, LIMITS)
    assert len(str(raised.value).splitlines()) == 1


def test_an_overlap_is_the_parser_s_own() -> None:
    with pytest.raises(SplitterError, match=r"overlap=2: llama_index.*SentenceSplitter has its own"):
        make("SentenceSplitter", ChunkLimits(2, 30, 2))
    with pytest.raises(SplitterError, match="unknown kind"):
        make("SentenceSplitter").split("text", "poem")


def test_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Small chunks make llama-index print a warning; a command's output may be JSON."""
    for spec in (*APART, *SHARING):
        make(spec).split(TEXT)
    assert capsys.readouterr() == ("", "")
