"""Files that are dropped on the page go to the server at once; what it refuses is told with its reason."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

import streamlit as st

from app.client import library
from app.client.connection import ServerConnection, ServerError
from app.client.files import SAME_NAME, SentNames
from ui.documents.progress import allowed_jobs
from ui.markup import label, refusal

if TYPE_CHECKING:
    from streamlit.runtime.uploaded_file_manager import UploadedFile

TURN, SENT, REFUSED = "uploads", "sent-uploads", "refused-uploads"  # of the session
TAKEN = 409  # a name
FIRST = "documents"  # what the first collection is called
KINDS = (
    "Add documents: PDF, Word, PowerPoint, Excel, OpenDocument, RTF, EPUB, e-mails, web pages, Markdown, text, tables, "
    "notebooks, code"
)


def forbidden(connection: ServerConnection) -> bool:
    """Whether this key may send nothing."""
    return allowed_jobs(connection) is None


def refused() -> None:
    """What the last files were refused for, until others are sent."""
    for name, reason in st.session_state.get(REFUSED, []):
        st.html(refusal(f"{name}: {reason}"))


def offer(connection: ServerConnection, collection: str, *, new: bool = False, samples: bool = False) -> None:
    """`new`: the collection is made for the first file."""
    turn = st.session_state.setdefault(TURN, 0)  # another widget each time, which is empty
    files = st.file_uploader(KINDS, accept_multiple_files=True, key=f"upload-{collection}-{turn}")
    if samples and asks_for_samples():
        load_samples(connection, collection, new=new)
        st.query_params["collection"] = collection
        st.rerun()
    if files:
        _send(connection, collection, files, new)


def replacement(connection: ServerConnection, collection: str, name: str) -> None:
    """A new version of a document, under its name, by a widget of its own: it never becomes one of another document."""
    turn = st.session_state.setdefault(TURN, 0)
    suffix = PurePath(name).suffix.lower()
    file = st.file_uploader("New version", type=suffix or None, key=f"replace-{collection}-{name}-{turn}")
    if file is not None:
        _send(connection, collection, [file], new=False, name=name)


def asks_for_samples() -> bool:
    return st.button("Load the sample documents", icon=":material/auto_stories:")


def load_samples(connection: ServerConnection, collection: str, *, new: bool) -> None:
    st.session_state[REFUSED] = []
    try:
        if new:
            _make(connection, collection)
        library.send_samples(connection, collection)
    except ServerError as error:
        st.session_state[REFUSED] = [("the samples", str(error))]


def _send(
    connection: ServerConnection, collection: str, files: list[UploadedFile], new: bool, name: str | None = None
) -> None:
    """A click meanwhile ends this run, and the next one goes on behind what is sent."""
    sent: set[str] = st.session_state.setdefault(SENT, set())
    if not any(file.file_id in sent for file in files):  # else a run that goes on
        st.session_state[REFUSED] = []
    told = st.session_state.setdefault(REFUSED, [])
    if new:
        _make(connection, collection)
    names = SentNames()
    for number, file in enumerate(files):
        is_new = names.add(file.name)
        if file.file_id in sent:
            continue
        sent.add(file.file_id)  # before: a run that a click ends goes on with the file that it has begun, and no other
        if not is_new:
            told.append((file.name, SAME_NAME))
            continue
        with st.spinner(f"Sending {label(file.name)} ({number + 1} of {len(files)})"):
            try:
                library.send(connection, collection, name or file.name, file)
            except ServerError as error:
                told.append((file.name, str(error)))
    st.session_state[TURN] += 1
    st.session_state[SENT] = set()
    st.query_params.from_dict({"collection": collection})  # where they are seen on their way
    st.rerun()


def _make(connection: ServerConnection, collection: str) -> None:
    try:
        library.create(connection, collection)
    except ServerError as error:
        if error.answered != TAKEN:  # by a tab beside this one
            raise
