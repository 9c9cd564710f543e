"""The page as a whole."""

from __future__ import annotations

import streamlit as st

from ui.bridge import Action


def show(action: Action | None) -> None:
    st.title("Documents")
