"""What can be chosen, each with one plain sentence."""

from __future__ import annotations

import streamlit as st

from ui.bridge import Action


def show(action: Action | None) -> None:
    st.title("Settings")
