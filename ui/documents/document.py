"""One document: its text with the chunks over it, a new version of it, and its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.client import library
from app.client.amounts import count, size
from app.client.answers import number
from app.client.connection import ServerConnection, ServerError
from ui.bridge import Action
from ui.documents.chunks import coloured, windows
from ui.documents.sending import forbidden, replacement
from ui.markup import escape, label, refusal

DOCUMENT, AT = "document", "at"  # of the page's address
TURN_TO = "document-window"  # an action
TOLD = "documents-told"  # of the session: what the overview tells next
READ = "document-read"  # of the session: the one that is open, as it was last listed, and itself
LONGEST = 4_000_000  # characters of a text that a session keeps
MISSING = 404
LEGEND = (
    '<p class="rc-hint">Each colour is a chunk, as the splitter cut it: what is found, kept and cited is always whole '
    "chunks. Point at one, or walk by the arrow keys, for its tokens, its heading, and whether its KV is kept. A "
    "dotted line is under those without.</p>"
)


def show(connection: ServerConnection, collection: str, wanted: str, action: Action | None) -> bool:
    """False where there is no such document."""
    if action is not None and action.name == TURN_TO:
        st.query_params[AT] = action.value
    try:
        one = number(wanted)
        found = None if one is None else _read(connection, collection, one)
    except ServerError as error:
        if error.answered != MISSING:
            raise
        found = None
    if found is None:
        return False
    if st.button("All documents", icon=":material/arrow_back:", type="tertiary"):
        _leave()
    _head(found)
    if not forbidden(connection):
        _changes(connection, collection, found)
    _text(found)
    return True


def _read(connection: ServerConnection, collection: str, document_id: int) -> Mapping[str, Any] | None:
    """Each click runs the page anew: the text is fetched again only where something of the document has changed."""
    listed = library.listed_document(connection, collection, document_id)  # first: what is read then is no older
    if listed is None:
        return None
    about = (collection, dict(listed))
    known = st.session_state.get(READ)
    if known is not None and known[0] == about:
        return dict(known[1])
    found = library.document(connection, collection, document_id)
    if len(str(found["text"])) <= LONGEST:
        st.session_state[READ] = (about, found)
    return found


def _leave() -> None:
    for name in (DOCUMENT, AT):
        st.query_params.pop(name, None)
    st.session_state.pop(READ, None)
    st.rerun()


def _head(found: Mapping[str, Any]) -> None:
    title = str(found["title"] or found["name"])
    cached = sum(one["cached"] is True for one in found["chunks"])
    chunks = count(len(found["chunks"]), "chunk")
    tokens = count(sum(one["tokens"] for one in found["chunks"]), "token")
    facts = [
        size(found["bytes"]),
        tokens,
        f"{chunks}, KV of {'all' if cached == len(found['chunks']) else f'{cached:,}'}",
    ]
    told = "".join(f"<span>{one}</span>" for one in facts)
    name = f'<span dir="auto">{escape(str(found["name"]))}</span>'
    st.html(f'<h2 class="rc-title" dir="auto">{escape(title)}</h2><div class="rc-facts">{name}{told}</div>')
    if found["error"]:
        st.html(refusal(str(found["error"])))


def _changes(connection: ServerConnection, collection: str, found: Mapping[str, Any]) -> None:
    name = str(found["name"])
    with st.container(horizontal=True):
        if "/" not in name:  # what the server's machine has ingested has a path, and is ingested anew there
            with st.popover("Replace", icon=":material/upload_file:"):
                st.html(
                    '<p class="rc-hint">The new file takes this one’s place; what both have in common keeps its KV.</p>'
                )
                replacement(connection, collection, name)
        with st.popover("Delete", icon=":material/delete:"):
            chunks = count(len(found["chunks"]), "chunk")
            goes = (
                f"It goes with its {chunks} and their KV, as far as no other document has the same text. Answers that"
            )
            st.html(f'<p class="rc-hint">{goes} are there keep what they cited.</p>')
            if st.button("Delete it", type="primary"):
                _delete(connection, collection, found)


def _delete(connection: ServerConnection, collection: str, found: Mapping[str, Any]) -> None:
    try:
        gone = library.delete_document(connection, collection, int(found["id"]))
    except ServerError as error:
        st.html(refusal(str(error)))
        return
    went = f"{count(gone['chunks'], 'chunk')} and {gone['kv_variants']:,} pieces of KV went with it"
    st.session_state[TOLD] = f"{label(str(found['name']))} is deleted: {went}."
    _leave()


def _text(found: Mapping[str, Any]) -> None:
    text, chunks = str(found["text"]), found["chunks"]
    if not text:
        return
    spans = windows(text, chunks)
    place = min(number(st.query_params.get(AT, "0")) or 0, len(spans) - 1)
    st.html(f"{LEGEND}{_turns(place, len(spans))}{coloured(text, chunks, spans[place])}{_turns(place, len(spans))}")


def _turns(place: int, of: int) -> str:
    """To the parts of a long text that stand before and behind."""
    if of == 1:
        return ""
    before = _turn(place - 1, "Before") if place else ""
    behind = _turn(place + 1, "Next") if place + 1 < of else ""
    return f'<p class="rc-facts rc-turns">{before}<span>Part {place + 1:,} of {of:,}</span>{behind}</p>'


def _turn(place: int, text: str) -> str:
    return f'<button class="rc-quiet" data-rc="{TURN_TO}" data-rc-value="{place}">{text}</button>'
