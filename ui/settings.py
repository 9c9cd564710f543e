"""What can be chosen, each with one plain sentence: for the questions of this tab, and by whoever runs the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from app.client import library
from app.client.amounts import count, duration, size
from app.client.connection import ServerConnection
from ui import access
from ui.bridge import Action
from ui.documents.progress import allowed_jobs
from ui.markup import escape

CHOSEN = "question-settings"  # of the session: fields that the chat sends with each question
AS_SET = ""  # as the server's settings say
MOST_CHUNKS, MOST_TOKENS = 30, 2048
Setting = Mapping[str, Any]
LINKERS = {
    AS_SET: "As the server is set",
    "full": "Exact: nothing is reused, every token is computed; the slowest first word",
    "auto": "Balanced: KV is reused, and a tenth of the tokens that lost their context computed again",
    "fast": "Fastest: KV is reused with a small repair; answers may differ a little more",
}
RETRIEVAL = {
    AS_SET: "As the server is set",
    "hybrid": "By meaning and by words",
    "vector": "By meaning",
    "keyword": "By words",
}
SENTENCES = {
    "model": "The language model that reads the documents and answers.",
    "embedder": "Finds passages by their meaning.",
    "engine": "What runs the model.",
    "linker": "Decides which tokens of reused KV are computed again, so that an answer hardly shows the reuse.",
    "splitter": "Cuts documents into chunks, which are found, cached and cited.",
    "retrieval": "Passages are found by meaning, by words, or by both.",
    "top_k": "So many passages are read for an answer.",
    "reranker": "Looks at what was found a second time, and puts the best first.",
    "neighbours": "So many chunks on each side of a passage are read with it.",
    "prompt_order": "In which order passages stand before the question; best first reuses least.",
    "max_tokens": "An answer ends after so many tokens at the latest.",
    "chunk_tokens": "No chunk is longer than this.",
    "min_chunk_tokens": "Chunks are at least this long, where the text allows it.",
    "kv": "When the KV of documents is computed: as they come, or as answers use them.",
    "codec": "How exactly KV is kept on the disk; smaller is less exact.",
    "context_chunks": "KV of a chunk is kept behind up to so many others that stood before it.",
    "temperature": "0 gives the likeliest answer; higher values vary it.",
    "top_p": "Tokens are drawn from the likeliest that come to this share.",
    "seed": "The same question has the same answer again, where one is set.",
    "ram_bytes": "So much KV is held in memory, for the soonest first words.",
    "disk_bytes": "So much KV is kept on the disk; what saves least makes room.",
}
NAMES = {
    "top_k": "Passages (k)",
    "kv": "KV at ingest",
    "top_p": "Top p",
    "ram_bytes": "Memory for KV",
    "disk_bytes": "Disk for KV",
    "max_tokens": "Longest answer",
    "chunk_tokens": "Longest chunk",
    "min_chunk_tokens": "Shortest chunk",
    "prompt_order": "Order of passages",
    "context_chunks": "Chunks before a chunk",
}


def show(action: Action | None) -> None:
    st.title("Settings")
    connection = access.connection()
    settings = {str(one["name"]): one for one in library.settings(connection)}
    st.header("Your questions")
    st.html('<p class="rc-hint">They hold for the questions that you ask in this tab, from the next one on.</p>')
    st.session_state[CHOSEN] = _questions(settings, st.session_state.get(CHOSEN, {}))
    st.header("What answers here")
    st.html('<p class="rc-hint">Whoever runs the server changes these, by the variable that is named.</p>')
    st.html(listed([one for one in settings.values() if not one["anew"]]))
    st.header("What takes the documents anew")
    st.html(cost(library.listed_collections(connection), library.cache_shares(connection), _pace(connection)))
    st.html(listed([one for one in settings.values() if one["anew"]]))
    _key()


def _questions(settings: Mapping[str, Setting], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What is as the server's settings say is left out."""
    with st.container(width=640):
        linker = _choice(st.radio, "Reuse of KV", LINKERS, settings, "linker", chosen)
        retrieval = _choice(st.selectbox, "How passages are found", RETRIEVAL, settings, "retrieval", chosen)
        chunks = _number("Passages that are read (k)", settings, "top_k", chosen.get("chunks"), MOST_CHUNKS)
        tokens = _number("Longest answer, in tokens", settings, "max_tokens", chosen.get("max_tokens"), MOST_TOKENS)
    told = {"linker": linker, "retrieval": retrieval, "chunks": chunks, "max_tokens": tokens}
    return {name: value for name, value in told.items() if value}


def _choice(
    widget: Callable[..., Any],
    text: str,
    options: Mapping[str, str],
    settings: Mapping[str, Setting],
    name: str,
    chosen: Mapping[str, Any],
) -> str:
    names = list(options)
    _seed(name, chosen[name] if chosen.get(name) in names else AS_SET)
    told = f"The server is set to {_value(settings, name)}."
    return str(widget(text, names, key=_key_of(name), format_func=options.__getitem__, help=told))


def _number(text: str, settings: Mapping[str, Setting], name: str, chosen: int | None, most: int) -> int | None:
    _seed(name, chosen)
    placeholder = f"as the server: {_value(settings, name)}"
    value: int | None = st.number_input(text, 1, most, value=None, step=1, placeholder=placeholder, key=_key_of(name))
    return value


def _key_of(name: str) -> str:
    return f"setting-{name}"


def _seed(name: str, value: object) -> None:
    """Streamlit forgets a widget that another page does not show. As its default the value would make it another one
    with each choice, which loses every second.
    """
    st.session_state.setdefault(_key_of(name), value)


def _value(settings: Mapping[str, Setting], name: str) -> str:
    return written(settings[name]) if name in settings else "its own choice"


def listed(settings: Sequence[Setting]) -> str:
    """As HTML: name, value, a sentence, and the variable."""
    order = list(SENTENCES)
    known = sorted((one for one in settings if one["name"] in order), key=lambda one: order.index(one["name"]))
    return f'<div role="list">{"".join(map(_row, known))}</div>'


def _row(one: Setting) -> str:
    name = str(one["name"])
    shown = NAMES.get(name, name.replace("_", " ").capitalize())
    about = f"{escape(SENTENCES[name])} <code>{escape(str(one['variable']))}</code>"
    return (
        f'<div class="rc-setting" role="listitem"><span class="rc-setting-name">{escape(shown)}</span>'
        f'<span><strong dir="auto">{escape(written(one))}</strong><span class="rc-sub">{about}</span></span></div>'
    )


def written(one: Setting) -> str:
    value = one["value"]
    if value is None:
        return "none"
    if str(one["name"]).endswith("_bytes") and isinstance(value, int):
        return size(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def cost(collections: Sequence[Setting], shares: Mapping[str, Mapping[str, Any]], pace: float | None) -> str:
    """What a new capture of all that is there takes; seconds only where earlier files told how fast this machine is."""
    tokens = sum(int(one["tokens"]) for one in collections)
    if not tokens:
        return '<p class="rc-hint">Nothing is in yet, so a change of these costs nothing now.</p>'
    documents = count(sum(int(one["documents"]) for one in collections), "document")
    nbytes = sum(int(one["bytes"]) for one in shares.values())
    takes = f", about {duration(tokens / pace)} at the pace of the last files" if pace else ""
    return (
        '<p class="rc-hint">A change of one of these holds for what comes after it. To have it for what is in takes '
        f"reading {count(tokens, 'token')} of {documents} anew{takes}. The {size(nbytes)} of KV that are kept are of "
        "these settings.</p>"
    )


def _pace(connection: ServerConnection) -> float | None:
    """Tokens per second of the last files whose KV was computed."""
    found = allowed_jobs(connection)
    return None if found is None else pace(found)


def pace(jobs: Sequence[Mapping[str, Any]]) -> float | None:
    tokens = seconds = 0
    for one in jobs:
        made = one["progress"].get("tokens", 0) if one["progress"].get("kv_variants") else 0
        if one["state"] == "done" and made and one["started"] and one["finished"] > one["started"]:
            tokens += made
            seconds += one["finished"] - one["started"]
    return tokens / seconds if seconds else None


def _key() -> None:
    if not st.session_state.get(access.KEY):
        return
    st.header("Your key")
    st.html('<p class="rc-hint">This tab knows it until it is closed.</p>')
    if st.button("Forget it", icon=":material/logout:"):
        access.leave()
        st.rerun()
