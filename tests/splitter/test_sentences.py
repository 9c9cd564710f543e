from __future__ import annotations

import socket
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitter.units import WINDOW, sentence_spans


def sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text, 0, len(text))]


def test_abbreviations_end_no_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is fetched for it."""
    monkeypatch.setattr(socket, "create_connection", None)
    text = "Dr. Smith of the U.S. Army paid 3.50 dollars. Why did Mr. Jones not? Nobody knew!"
    assert sentences(text) == [
        "Dr. Smith of the U.S. Army paid 3.50 dollars.",
        "Why did Mr. Jones not?",
        "Nobody knew!",
    ]


def test_ideographic_stops_need_no_space() -> None:
    assert sentences("今日は晴れ。「本当？」明日は雨。") == ["今日は晴れ。", "「本当？」", "明日は雨。"]


@pytest.mark.parametrize(
    "told",
    [
        ["यह पहला वाक्य है।", "क्या यह दूसरा है?", 'उसने कहा, "चलो।"', "हाँ ।", "**बस।**", "रामः वनं गच्छति॥"],
        ["এটি প্রথম বাক্য।", "এটি দ্বিতীয় বাক্য।"],
        ["یہ پہلا جملہ ہے۔", "کیا یہ دوسرا ہے؟", "قیمت ۳۔۵ روپے ہے۔", "کیا واقعی؟!", "”ہاں۔“", "وہ گیا ۔"],
        ["ይህ የመጀመሪያው ዓረፍተ ነገር ነው።", "ይህ ምንድን ነው፧", "ሦስተኛው ነው።"],
        ["Սա առաջին նախադասությունն է։", "Սա երկրորդն է։"],
        ["ဒါက ပထမ စာကြောင်း ဖြစ်သည်။", "ဒါက ဒုတိယ ဖြစ်သည်။"],
        ["នេះជាប្រយោគទីមួយ។", "នេះជាប្រយោគទីពីរ។", "ចប់៕"],
    ],
)
def test_sentences_end_at_the_stops_of_other_scripts(told: list[str]) -> None:
    assert sentences(" ".join(told)) == told
    unspaced = "".join(one.replace('"', "").replace("*", "").replace("?", "؟") for one in told)
    assert len(sentences(unspaced)) == len(told)


def test_a_long_paragraph_is_read_as_if_at_once() -> None:
    text = " ".join(f"This is sentence number {n} of Mr. Long." for n in range(500))
    assert len(text) > 5 * WINDOW
    assert sentences(text) == [f"This is sentence number {n} of Mr. Long." for n in range(500)]


def test_offsets_are_those_of_the_whole_text() -> None:
    text = "Not this. One here. Two here. Not that."
    assert [text[slice(*span)] for span in sentence_spans(text, 10, 29)] == ["One here.", "Two here."]


@given(text=st.text(alphabet="aB.! \n。।۔5)\"'", max_size=300))
def test_sentences_hold_all_that_is_not_blank(text: str) -> None:
    spans = list(sentence_spans(text, 0, len(text)))
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())
