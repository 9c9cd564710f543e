"""`ragcache chat`: questions and answers by lines, at a terminal or through a pipe."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from io import TextIOWrapper
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from app.cli.answers import ShownAnswer, ShownStream, show_citations, show_pieces, show_report
from app.cli.ask import OF_ANSWERS, OF_MODELS, Greedy, NoCache, ShowReport, answering, choices_of
from app.cli.flags import Temperature, configured
from app.cli.output import FAILURES, error_line, plain
from app.client.address import NamedServer
from app.client.amounts import count
from app.client.connection import ServerConnection
from app.client.conversation import ServedConversation

if TYPE_CHECKING:
    from app.settings import Settings

HELP = """\
/new      start a new conversation
/sources  show what the last answer was made from
/quit     end; so does Ctrl-D. Ctrl-C stops an answer."""


class ChattedWith(Protocol):
    """A conversation of this machine, or of a server."""

    @property
    def id(self) -> str | None: ...
    @property
    def collection(self) -> str: ...
    @property
    def unsaved(self) -> Sequence[object]: ...
    def stream(self, question: str) -> AbstractContextManager[ShownStream]: ...
    def save(self) -> None: ...


def chat_with_server(
    server: NamedServer,
    no_cache: bool,
    greedy: bool,
    temperature: float | None,
    continued: str | None,
    show_report: bool,
    **flags: Any,
) -> None:
    collection, choices = choices_of(server, flags, no_cache, greedy, temperature, top_k="chunks")
    connection = ServerConnection(server)

    def begin(collection: str) -> ServedConversation:
        return ServedConversation(connection, collection, choices)

    first = ServedConversation(connection, collection, choices, continued)
    Chat(begin, first, show_report).run()


@configured(*OF_ANSWERS, *OF_MODELS, served=chat_with_server)
def chat(
    settings: Settings,
    no_cache: NoCache = False,
    greedy: Greedy = False,
    temperature: Temperature = None,
    continued: Annotated[str | None, typer.Option("--continue", help="The id of a conversation to go on with.")] = None,
    show_report: ShowReport = True,
) -> None:
    """Ask several questions after each other; follow-ups are understood. /help lists what else can be typed."""
    from app.answering.pipeline import RagPipeline

    with RagPipeline(answering(settings, no_cache, greedy, temperature)) as pipeline:

        def begin(collection: str) -> ChattedWith:
            return pipeline.conversation(collection=collection)

        stored = Chat(begin, pipeline.conversation(continued), show_report).run()
    if not stored:
        raise typer.Exit(1)


class Chat:
    """One terminal, one conversation at a time. Only the end of the input, or of the output, ends it."""

    def __init__(self, begin: Callable[[str], ChattedWith], conversation: ChattedWith, show_report: bool):
        """`begin` a new one, of a collection."""
        self._begin = begin
        self._conversation = conversation
        self._before: list[ChattedWith] = []  # with answers that could not be stored so far
        self._show_report = show_report
        self._last: ShownAnswer | None = None
        self._terminal = sys.stdin.isatty()

    def run(self) -> bool:
        """Whether all that was said is stored."""
        if self._terminal:
            import readline  # noqa: F401  # it gives input() its history and its keys

            print(HELP)
        if isinstance(sys.stdin, TextIOWrapper):
            sys.stdin.reconfigure(errors="surrogateescape")  # a line that is no UTF-8 costs that line
        try:
            while (line := self._read()) is not None and line != "/quit":
                self._take(line)
        finally:
            stored = self._end()
        return stored

    def _read(self) -> str | None:
        """The next line; None at the end. Ctrl-C drops what was typed."""
        while True:
            try:
                return (input("> ") if self._terminal else input()).strip()
            except (EOFError, ConnectionError):
                if self._terminal:
                    print()
                return None
            except KeyboardInterrupt:
                if not self._terminal:  # whoever interrupts a pipe wants its end
                    raise
                print()

    def _take(self, line: str) -> None:
        """Whatever goes wrong with it is told, and the chat goes on."""
        try:
            if line.startswith("/"):
                self._command(line)
            elif line:
                self._ask(line)
        except BrokenPipeError:  # nobody reads any more
            raise
        except KeyboardInterrupt:
            print()
        except (*FAILURES, RuntimeError) as error:  # torch has no other name for a full memory
            print(error_line(error), file=sys.stderr)
            if self._conversation.unsaved:
                print("note: the last answer is not stored yet: the next question tries again", file=sys.stderr)

    def _command(self, line: str) -> None:
        if line == "/new":
            new = self._begin(self._conversation.collection)
            self._before += [self._conversation] if self._conversation.unsaved else []
            self._conversation, self._last = new, None
        elif line == "/sources":
            show_citations(self._last.citations if self._last else ())
        else:
            print(HELP if line == "/help" else f"no command {plain(line.split()[0])}\n{HELP}", file=sys.stderr)

    def _ask(self, question: str) -> None:
        with self._conversation.stream(question) as stream, interrupting(stream):
            show_pieces(stream)
            self._last = stream.answer
        show_report(self._last, self._show_report)

    def _end(self) -> bool:
        """Store what could not be stored before; tell what still cannot, and how to go on."""
        stored = True
        with suppress(BrokenPipeError):
            for conversation in (*self._before, self._conversation):
                lost = len(conversation.unsaved)
                try:
                    conversation.save()
                except FAILURES as error:
                    stored = False
                    print(f"{error_line(error)}. Not stored: {count(lost, 'answer')}", file=sys.stderr)
            if self._conversation.id is not None:
                print(f"Go on with: ragcache chat --continue {self._conversation.id}", file=sys.stderr)
        return stored


@contextmanager
def interrupting(stream: ShownStream) -> Iterator[None]:
    """Ctrl-C ends the answer behind what is shown, and not amid a step; a second one ends whatever hangs."""
    before = signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        stream.stop()

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
