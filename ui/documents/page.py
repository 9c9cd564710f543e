"""The page as a whole: a collection, what comes into it, and what is in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from app.client import library
from app.client.amounts import count, size
from app.client.answers import number
from app.client.connection import ServerConnection, ServerError
from ui import access
from ui.bridge import Action
from ui.documents import document, progress
from ui.documents.document import DOCUMENT, TOLD
from ui.documents.sending import FIRST, forbidden, offer, refused
from ui.markup import escape, refusal

COLLECTION, AFTER = "collection", "after"  # of the page's address
CHOSEN = "documents-collection"  # of the session
OPEN, MORE = "document", "documents-more"  # actions
WELCOME = """<div class="rc-empty"><h2>{title}</h2><p>Drop files here: reports, papers, manuals, tables. Each is cut
into chunks where its text allows it, and read by the model once. Answers then start from what was read, and cite where
they have it from.</p></div>"""


def show(action: Action | None) -> None:
    st.title("Documents")
    connection = access.connection()
    try:
        progress.act(connection, action)
    except ServerError as error:
        st.html(refusal(str(error)))
    _open(action)
    if told := st.session_state.pop(TOLD, ""):
        st.success(told, icon=":material/check:")
    collections = {str(one["name"]): one for one in library.listed_collections(connection)}
    if not collections:
        _first(connection)
        return
    name = _chosen(connection, list(collections))
    if opened := st.query_params.get(DOCUMENT):
        if document.show(connection, name, opened, action):
            return
        del st.query_params[DOCUMENT]
    _overview(connection, collections[name])


def _open(action: Action | None) -> None:
    if action is not None and action.name in (OPEN, MORE):
        st.query_params[DOCUMENT if action.name == OPEN else AFTER] = action.value


def _first(connection: ServerConnection) -> None:
    if forbidden(connection):
        st.html('<p class="rc-hint">There is nothing that this key may see, and it may send nothing.</p>')
        return
    st.html(WELCOME.format(title="Nothing is here yet"))
    refused()
    offer(connection, FIRST, new=True, samples=True)


# -- which collection -------------------------------------------------------------------------------------------------


def _chosen(connection: ServerConnection, names: Sequence[str]) -> str:
    wanted = st.query_params.get(COLLECTION)
    st.session_state[CHOSEN] = wanted if wanted in names else names[0]
    if wanted and wanted not in names:
        st.html(refusal(f"The collection that was open is not there any more: this is “{names[0]}”."))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox("Collection", names, key=CHOSEN, on_change=_choose, width=320)
        with st.popover("New collection", icon=":material/add:"):
            _create(connection)
    return str(st.session_state[CHOSEN])


def _choose() -> None:
    st.query_params.from_dict({COLLECTION: st.session_state[CHOSEN]})


def _create(connection: ServerConnection) -> None:
    with st.form("new-collection", border=False):
        name = st.text_input("Name", max_chars=200, placeholder="papers").strip()
        if not st.form_submit_button("Make it", type="primary") or not name:
            return
    try:
        library.create(connection, name)
    except ServerError as error:
        st.html(refusal(str(error)))
        return
    st.query_params.from_dict({COLLECTION: name})
    st.rerun()


# -- what is in it ----------------------------------------------------------------------------------------------------


def _overview(connection: ServerConnection, card: Mapping[str, Any]) -> None:
    name = str(card["name"])
    empty = not card["documents"] and not card["failed"]
    jobs = progress.known_jobs(connection, name)
    if empty and not jobs:
        st.html(WELCOME.format(title=f"“{escape(name)}” is empty"))
    refused()
    if jobs is None:
        st.html('<p class="rc-hint">This key reads and asks; to add or delete documents takes another one.</p>')
    else:
        offer(connection, name, samples=empty and not jobs)
        progress.show(connection, name, jobs)
    if empty:
        return
    _facts(connection, card)
    if card["chunks"]:
        _offer_questions(name)
    after = number(st.query_params.get(AFTER, "0")) or 0
    listed, more = library.page_of_documents(connection, name, after)
    st.html(table(listed, more))
    _delete_collection(connection, card)


def _offer_questions(collection: str) -> None:
    chat = st.session_state.get(access.PAGES, {}).get("chat")
    if chat is not None:
        st.page_link(chat, label="Ask about it", icon=":material/forum:", query_params={"collection": collection})


def _facts(connection: ServerConnection, card: Mapping[str, Any]) -> None:
    share = library.cache_shares(connection).get(str(card["name"]), {})
    facts = [count(card["documents"], "document"), count(card["chunks"], "chunk"), count(card["tokens"], "token")]
    facts.append(f"{size(card['bytes'])} of files")
    if share:
        facts.append(
            f"KV of {share['cached']:,} of {count(share['chunks'], 'chunk')}, {size(share['bytes'])} on the disk"
        )
    if card["failed"]:
        facts.append(f"{card['failed']:,} of them failed")
    st.html(f'<div class="rc-facts">{"".join(f"<span>{one}</span>" for one in facts)}</div>')


def table(listed: Sequence[Mapping[str, Any]], more: bool) -> str:
    """As HTML. A click on a name opens the document."""
    head = (
        '<tr><th>Document</th><th>State</th><th class="rc-number rc-wide">Pages</th><th class="rc-number">Chunks</th>'
        '<th class="rc-number rc-wide">Size</th><th class="rc-number rc-wide">KV</th></tr>'
    )
    button = ""
    if more and listed:
        button = (
            f'<p><button class="rc-quiet" data-rc="{MORE}" data-rc-value="{int(listed[-1]["id"])}">More</button></p>'
        )
    body = "".join(map(_row, listed))
    inside = f"<thead>{head}</thead><tbody>{body}</tbody>"
    return f'<div class="rc-scroll"><table class="rc-table">{inside}</table></div>{button}'


def _row(one: Mapping[str, Any]) -> str:
    name, title = str(one["name"]), str(one.get("title") or "")
    below = f'<span class="rc-sub" dir="auto">{escape(title)}</span>' if title and title != name else ""
    opens = (
        f'<button class="rc-link" dir="auto" data-rc="{OPEN}" data-rc-value="{int(one["id"])}">{escape(name)}</button>'
    )
    if one["state"] == "ready":
        state = '<span class="rc-good">ready</span>'
    else:
        state = f'<span class="rc-bad">failed</span><span class="rc-sub">{escape(str(one.get("error") or ""))}</span>'
    cached = one.get("cached")
    kv = (
        "–"
        if cached is None or not one["chunks"]
        else "all"
        if cached >= one["chunks"]
        else f"{cached:,} of {one['chunks']:,}"
    )
    pages = f"{one['pages']:,}" if one["pages"] else "–"
    return (
        f'<tr><td>{opens}{below}</td><td>{state}</td><td class="rc-number rc-wide">{pages}</td>'
        f'<td class="rc-number">{one["chunks"]:,}</td><td class="rc-number rc-wide">{size(one["bytes"])}</td>'
        f'<td class="rc-number rc-wide">{kv}</td></tr>'
    )


def _delete_collection(connection: ServerConnection, card: Mapping[str, Any]) -> None:
    with st.popover("Delete the collection", icon=":material/delete:"):
        goes = f"{count(card['documents'], 'document')}, {count(card['chunks'], 'chunk')}, their KV, and all"
        st.html(f'<p class="rc-hint">{goes} conversations about them go for good.</p>')
        # A click that comes when another one has been deleted meanwhile, and the page shows the next, is none on this.
        if not st.button("Delete it all", type="primary", key=f"delete-{card['name']}-{card['created']}"):
            return
        try:
            library.delete_collection(connection, str(card["name"]))
        except ServerError as error:
            st.html(refusal(str(error)))
            return
    st.query_params.clear()
    st.session_state[TOLD] = "The collection is deleted."
    st.rerun()
