"""Texts in which words, or meaning, tell nothing of which sentences belong together."""

from __future__ import annotations

# What three sentences say of a thing: they share the thing alone, which each calls by another name.
SAYING = (
    "People nowadays talk a great deal about the {}.",
    "Many visitors asked us something concerning some {}.",
    "Nobody around here ever forgot that old {}.",
)
SYNONYMS = (
    ("dog", "puppy", "hound"), ("car", "automobile", "vehicle"), ("doctor", "physician", "surgeon"),
    ("ship", "vessel", "steamboat"), ("house", "cottage", "dwelling"), ("king", "monarch", "emperor"),
    ("rain", "drizzle", "thunderstorm"), ("bread", "loaf", "baguette"), ("guitar", "violin", "cello"),
    ("lawyer", "attorney", "solicitor"), ("forest", "woodland", "jungle"), ("money", "cash", "banknote"),
    ("baby", "infant", "newborn"), ("thief", "burglar", "robber"), ("church", "cathedral", "chapel"),
    ("computer", "laptop", "workstation"), ("soldier", "warrior", "infantryman"), ("river", "stream", "creek"),
    ("wine", "champagne", "burgundy"), ("airplane", "aircraft", "jet"), ("teacher", "professor", "schoolmaster"),
    ("shoe", "boot", "sandal"), ("mountain", "summit", "hill"), ("book", "novel", "paperback"),
)  # fmt: skip
CODED = (
    "Before the start set the regulator of unit {} to zero.",
    "After the end the regulator of unit {} is read off.",
    "Once a month somebody oils the regulator of unit {} here.",
)


def by_meaning() -> list[list[str]]:
    """The sentences of each chunk. No word of one is in the others of its chunk."""
    return [[saying.format(one) for saying, one in zip(SAYING, names, strict=True)] for names in SYNONYMS]


def by_words(count: int = 24) -> list[list[str]]:
    """All chunks say the same of another unit, whose numbers mean nothing."""
    return [[coded.format(f"{place * 7919 % 9973:04d}") for coded in CODED] for place in range(1, count + 1)]
