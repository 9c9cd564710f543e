"""`ragcache chat`: questions and answers by lines, at a terminal or through a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.ask import Linker, MaxTokens, NoCache, ShowReport, TopK
from app.cli.catalog_flags import DataDir, Name
from app.cli.flags import CacheDir, Device, Dtype, Engine, Model, configure

if TYPE_CHECKING:
    from app.pipeline import Answer, Conversation, RagPipeline

HELP = """\
/new      start a new conversation
/sources  show what the last answer was made from
/quit     end; so does Ctrl-D. Ctrl-C stops an answer."""


def chat(
    collection: Name = None,
    top_k: TopK = None,
    linker: Linker = None,
    no_cache: NoCache = False,
    max_tokens: MaxTokens = None,
    continued: Annotated[str | None, typer.Option("--continue", help="The id of a conversation to go on with.")] = None,
    show_report: ShowReport = True,
    engine: Engine = None,
    model: Model = None,
    device: Device = None,
    dtype: Dtype = None,
    cache_dir: CacheDir = None,
    data_dir: DataDir = None,
) -> None:
    """Ask several questions after each other; follow-ups are understood. /help lists what else can be typed."""
    settings = configure(
        collection=collection, top_k=top_k, max_tokens=max_tokens, linker="full" if no_cache else linker,
        engine=engine, model=model, device=device, dtype=dtype, cache_dir=cache_dir, data_dir=data_dir,
    )  # fmt: skip
    from app.pipeline import RagPipeline

    with RagPipeline(settings) as pipeline:
        Chat(pipeline, pipeline.conversation(continued), show_report).run()


class Chat:
    """One terminal, one conversation at a time."""

    def __init__(self, pipeline: RagPipeline, conversation: Conversation, show_report: bool):
        self._pipeline = pipeline
        self._conversation = conversation
        self._show_report = show_report
        self._last: Answer | None = None
        self._terminal = sys.stdin.isatty()

    def run(self) -> None:
        if self._terminal:
            import readline  # noqa: F401  # it gives input() its history and its keys

            print(HELP)
        while (line := self._read()) is not None:
            if line == "/quit":
                break
            if line.startswith("/"):
                self._command(line)
            elif line:
                self._ask(line)
        if self._conversation.id is not None:
            print(f"Go on with: ragcache chat --continue {self._conversation.id}", file=sys.stderr)

    def _read(self) -> str | None:
        """The next line; None at the end. Ctrl-C drops what was typed."""
        while True:
            try:
                return (input("> ") if self._terminal else input()).strip()
            except EOFError:
                if self._terminal:
                    print()
                return None
            except KeyboardInterrupt:
                if not self._terminal:  # whoever interrupts a pipe wants its end
                    raise
                print()

    def _command(self, line: str) -> None:
        from app.cli.rendering import show_citations

        if line == "/new":
            self._conversation = self._pipeline.conversation(collection=self._conversation.collection)
            self._last = None
        elif line == "/sources":
            show_citations(self._last.citations if self._last else ())
        else:
            print(HELP if line == "/help" else f"no command {line.split()[0]}\n{HELP}", file=sys.stderr)

    def _ask(self, question: str) -> None:
        """An error is told, and the chat goes on."""
        from app.cli.rendering import show_pieces, show_report
        from ragcache.errors import PromptError

        try:
            with self._conversation.stream(question) as stream:
                try:
                    show_pieces(stream)
                except KeyboardInterrupt:
                    print()
                    stream.close()
                self._last = stream.answer
        except PromptError as error:
            print(f"error: {error}", file=sys.stderr)
            return
        except KeyboardInterrupt:  # before the first word
            print()
            return
        show_report(self._last, self._show_report)
