"""Uses beside questions, made of the same retrieved passages.

A shape changes what is asked for and, where that takes it, the texts, before anything is tokenised: so a chunk is
captured with what was planted in it. Its lots depend on the seed and on the question's name alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

from benchmarks.data import Dataset, Question
from benchmarks.quality import QUESTION
from benchmarks.quality.material import Material, PromptDraft
from ragcache.errors import ConfigError
from splitter.units import sentence_spans

Shape = Callable[[Material, Dataset, int], Material]  # with the whole data and the seed

WORDS = range(5, 41)  # of a sentence that says something by itself
SHOTS = 2  # sentences whose passage is told
CODES = range(10_000, 100_000)
COLOURS = (
    *("amber", "black", "blue", "bronze", "brown", "copper", "crimson", "golden", "green", "grey"),
    *("ivory", "lilac", "olive", "orange", "pink", "purple", "red", "silver", "white", "yellow"),
)
THINGS = (
    *("barn", "boat", "bridge", "cabin", "cellar", "door", "garage", "gate", "hall", "hut"),
    *("kiosk", "locker", "mill", "safe", "shed", "tent", "tower", "trunk", "tunnel", "vault"),
)


def asked(material: Material, dataset: Dataset, seed: int) -> Material:
    """The questions as they are."""
    return material


def summary(material: Material, dataset: Dataset, seed: int) -> Material:
    """Nobody wrote one down, so there is nothing to compare with but the full recompute's."""
    return _reworded(material, lambda draft: ("Summarise the passages above in two or three sentences.", ()))


def classes(material: Material, dataset: Dataset, seed: int) -> Material:
    """Each passage bears its number, the same in every prompt. Some sentences are told with theirs, one without."""
    labels = {number: str(number + 1) for number in material.texts}

    def wording(draft: PromptDraft) -> tuple[str, tuple[str, ...]]:
        lots = _lots(seed, draft.question)
        drawn = lots.sample(draft.passages, min(SHOTS + 1, len(draft.passages)))
        sentence = {number: lots.choice(sentences(material.texts[number])) for number in drawn}
        *shots, last = drawn
        lines = [f"Sentence: {sentence[number]}\nPassage: {labels[number]}\n" for number in shots]
        task = "Tell from which of the passages above each sentence is, by the number of the passage."
        text = "\n".join([f"{task}\n", *lines, f"Sentence: {sentence[last]}\nPassage:"])
        return text, (labels[last], f"Passage {labels[last]}")

    labelled = {number: f"Passage {labels[number]}: {text.strip()}" for number, text in material.texts.items()}
    return replace(_reworded(material, wording), texts=labelled)


def needle(material: Material, dataset: Dataset, seed: int) -> Material:
    """A code at the end of one passage of each prompt, which others have as it was."""
    names = [f"{colour} {thing}" for colour in COLOURS for thing in THINGS]
    texts, revised, drafts = dict(material.texts), dict[int, int](), []
    for draft in material.prompts:
        lots = _lots(seed, draft.question)
        name, code = lots.choice(names), str(lots.choice(CODES))
        place = lots.randrange(len(draft.passages))
        other, number = draft.passages[place], max(texts) + 1
        texts[number] = f"{texts[other].strip()} The code of the {name} is {code}."
        revised[number] = other
        passages = (*draft.passages[:place], number, *draft.passages[place + 1 :])
        text = f"What is the code of the {name}? Answer with the number alone."
        drafts.append(PromptDraft(replace(draft.question, text=text, answers=(code,)), passages))
    return replace(material, texts=texts, prompts=tuple(drafts), revised=revised)


def truth(material: Material, dataset: Dataset, seed: int) -> Material:
    """A sentence of the prompt's passages or, as often, one of another corpus's or question's."""

    def wording(draft: PromptDraft) -> tuple[str, tuple[str, ...]]:
        lots = _lots(seed, draft.question)
        own = [material.texts[number] for number in draft.passages]
        if is_true := lots.random() < 0.5:
            sentence = lots.choice(sentences(lots.choice(own)))
        else:
            sentence = _foreign(own, draft, material, dataset, lots)
        text = f'Do the passages above say this: "{sentence}" Answer with one word, true or false.'
        return text, ("true" if is_true else "false",)

    return _reworded(material, wording)


SHAPES: Mapping[str, Shape] = {
    QUESTION: asked,
    "summary": summary,
    "classes": classes,
    "needle": needle,
    "truth": truth,
}


def sentences(text: str) -> list[str]:
    """Those of a fair length, each on one line; the first words where there is none."""
    found = [" ".join(text[start:end].split()) for start, end in sentence_spans(text, 0, len(text))]
    return [one for one in found if len(one.split()) in WORDS] or [" ".join(text.split()[: WORDS.stop - 1])]


def _reworded(material: Material, wording: Callable[[PromptDraft], tuple[str, tuple[str, ...]]]) -> Material:
    """Each question with another text and right answers."""
    drafts = []
    for draft in material.prompts:
        text, answers = wording(draft)
        drafts.append(replace(draft, question=replace(draft.question, text=text, answers=answers)))
    return replace(material, prompts=tuple(drafts))


def _lots(seed: int, question: Question) -> random.Random:
    return random.Random(f"{seed} {question.name}")


def _foreign(own: list[str], draft: PromptDraft, material: Material, dataset: Dataset, lots: random.Random) -> str:
    """A sentence that none of the prompt's `own` passages has."""
    held = " ".join(" ".join(own).split())
    for texts in (_elsewhere(draft.question, dataset), _beside(draft, material)):
        for text in lots.sample(texts, len(texts)):
            if found := [sentence for sentence in sentences(text) if sentence not in held]:
                return lots.choice(found)
    raise ConfigError("--shape truth: all passages of these data are in one prompt, so no sentence is foreign to it")


def _elsewhere(question: Question, dataset: Dataset) -> list[str]:
    return [text for name, text in dataset.corpora.items() if name != question.corpus] + [
        text for other in dataset.questions if other.name != question.name for text in other.contexts
    ]


def _beside(draft: PromptDraft, material: Material) -> list[str]:
    return [text for number, text in material.texts.items() if number not in draft.passages]
