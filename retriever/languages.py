"""Which language a text is in, told by the small words that stand in every sentence, and the stems of its words.

Stems are Snowball's. Words come as retriever/words.py folds them, and so do the lists here.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from itertools import compress

import Stemmer

_SMALL = {
    "english": (
        "the of and to in is that it for was on are as with his they at be this have from or had by not but what all "
        "were we when your can there an which their if do will how about would been who its did does where why a i you "
        "me my so or no now she them some than then these those into only our out up has could should because any"
    ),
    "german": (
        "der die das und den von zu mit sich des auf fur ist im dem nicht ein eine als auch es an werden aus er hat "
        "dass sie nach wird bei einer um am sind noch wie einem uber einen so zum war haben nur oder aber vor zur bis "
        "mehr durch man was wer wo wann welche welcher wenn kann muss darf ich wir ihr ihre seine diese dieser"
    ),
    "french": (
        "le la les de des du et un une est en que qui dans pour pas au sur ne se ce il elle sont par plus avec aux ou "
        "ont cette nous vous mais son sa ses leur comme etre fait quel quelle quels quelles comment quand pourquoi "
        "je tout si deux meme y"
    ),
    "spanish": (
        "el la los las de que y en un una es por con para del se no su al lo como mas pero sus le ha o este si porque "
        "esta entre cuando muy sin sobre tambien me hasta hay donde quien desde todo nos cual cuantos cuales que son"
    ),
    "italian": (
        "il la le di che e in un una per con del della non si da dei al sono come piu ma lo ha gli alla anche nel i "
        "delle degli o questo questa quale quali quando dove chi se ci cui nella suo sua perche essere molto"
    ),
    "portuguese": (
        "o a os as de que e do da em um uma para com nao por mais dos das se na no ao como mas foi seu sua ou quando "
        "muito nos ja eu tambem pelo pela ate isso ela entre quem qual quais onde sao tem esta ser"
    ),
    "dutch": (
        "de het een en van in is dat op te zijn met die niet voor er aan om ook als dan maar bij uit door naar wordt "
        "over heeft nog kan worden of tot wat wie waar wanneer hoe welke ik je we ze deze dit zij haar mijn"
    ),
    "swedish": (
        "och att det som en pa ar av for med till den har de inte om ett han var jag sig fran vi sa kan nar eller men "
        "ut skulle hur vad vem vilken vilka denna detta hos under efter mot hade"
    ),
    "danish": (
        "og at det som en pa er af for med til den har de ikke om et han var jeg sig fra vi sa kan nar eller men ud "
        "skulle hvordan hvad hvem hvilken hvilke denne dette hos under efter mod havde blev"
    ),
    "norwegian": (
        "og at det som en pa er av for med til den har de ikke om et han var jeg seg fra vi sa kan nar eller men ut "
        "skulle hvordan hva hvem hvilken hvilke denne dette hos under etter mot hadde ble"
    ),
    "finnish": (
        "ja on ei etta se oli joka mutta kun han myos ovat tai mita kuin niin hanen jos sen ole vain nyt voi mika "
        "missa milloin kuka miten tama taman ne jotka kuten"
    ),
    "hungarian": (
        "a az es hogy nem is egy van meg ez azt mint csak ki mi volt de ha meg el vagy kell mar lesz hol mikor hogyan "
        "melyik ezt ezek azok minden utan kozott"
    ),
    "polish": (
        "i w na z do nie sie to jest ze jak o od po przez dla co czy ale za tak tym oraz jego byl lub ktory ktora "
        "ktore kto gdzie kiedy jaki jakie ten ta sa moze przy"
    ),
    "czech": (
        "a se v na je ze to s z do i o k ve pro za by ale jsou jako po co kde kdo kdy jak ktery ktera ktere jeho nebo "
        "pri byl od tak tento podle"
    ),
    "romanian": (
        "si de la in cu pe nu o un este din care ce mai sa a fi pentru au al ale prin sau dar cum unde cand cine sunt "
        "acest aceasta lui fost"
    ),
    "turkish": (
        "ve bir bu da de icin ile ne mi en o cok daha gibi olarak var olan kadar sonra nasil nerede kim hangi degil "
        "ama ya veya her"
    ),
    "russian": (
        "и в не на что с по как это он из у за от к но для о то все его я же так или был мы бы до кто где когда какой "
        "какие при есть их если"
    ),
    "greek": "και το η ο να του τησ τα με που για την τον σε απο δεν ειναι τι οι ωσ θα στο στη πωσ ποιοσ ποτε",
}
SMALL_WORDS: Mapping[str, frozenset[str]] = {
    name: frozenset(told.split()) for name, told in _SMALL.items() if name in Stemmer.algorithms()
}
STEMS = Stemmer.version()  # another one may cut words elsewhere
READ = 400  # words of a text that tell its language
SURE = 2  # small words that a language needs, and it needs more than any other
TELLING = 2  # characters: single letters are words of many languages, names and numbering
PART = 20  # one of so many words must be a small one: two among figures and names tell nothing
# Parts of a compound are joined by these.
_JOINTS: Mapping[str, tuple[str, ...]] = {
    "german": ("", "s", "n", "en", "es", "er", "e"),
    "dutch": ("", "s", "en", "e"),
    "swedish": ("", "s"),
    "danish": ("", "s", "e"),
    "norwegian": ("", "s", "e"),
    "finnish": ("", "n"),
    "hungarian": ("",),
}
LEAST_PART, LONGEST_COMPOUND = 4, 40  # characters
LONGEST_WORD = 256  # characters that are stemmed
REMEMBERED = 500  # stems of each language in each thread: a few MB where there are all languages
_OF_THREAD = threading.local()  # a stemmer is not safe for threads


def language_of(words: Sequence[str]) -> str | None:
    """The one whose small words are most; None where that is not clear."""
    counts: dict[str, int] = {}
    read = words[:READ]
    for word in read:
        for name in _LANGUAGES.get(word, ()):
            counts[name] = counts.get(name, 0) + 1
    best = sorted(counts.items(), key=lambda one: -one[1])[:2]
    if not best or best[0][1] < max(SURE, len(read) / PART) or (len(best) > 1 and best[1][1] == best[0][1]):
        return None
    return best[0][0]


def stems(words: Sequence[str], language: str | None) -> list[str]:
    """One for each word; a word with a digit in it is a number or an identifier, and stays whole, as do letters that
    are no word of any language: some of the stemmers take the square of a word's length.
    """
    if language is None:
        return list(words)
    plain = [len(word) <= LONGEST_WORD and word.isalpha() for word in words]
    found = iter(_stemmer(language).stemWords([*compress(words, plain)]))
    return [next(found) if one else word for word, one in zip(words, plain, strict=True)]


def parts(word: str, language: str) -> list[tuple[str, str]]:
    """The stems of the two parts of a compound, in all ways in which it may be one: the most even first."""
    joints = _JOINTS.get(language)
    if joints is None or not 2 * LEAST_PART <= len(word) <= LONGEST_COMPOUND or not word.isalpha():
        return []
    places = sorted(range(LEAST_PART, len(word) - LEAST_PART + 1), key=lambda place: abs(2 * place - len(word)))
    ways = [
        (bare, word[place:])
        for place in places
        for joint in joints
        if word[:place].endswith(joint) and len(bare := word[: place - len(joint)]) >= LEAST_PART
    ]
    found = stems([part for way in ways for part in way], language)
    return list(zip(found[::2], found[1::2], strict=True))


def _stemmer(language: str) -> Stemmer.Stemmer:
    made: dict[str, Stemmer.Stemmer] = _OF_THREAD.__dict__
    if language not in made:
        made[language] = Stemmer.Stemmer(language, REMEMBERED)
    return made[language]


def _by_word(small: Mapping[str, Collection[str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, told in small.items():
        for word in told:
            if len(word) < TELLING:
                continue
            found[word] = (*found.get(word, ()), name)
    return found


_LANGUAGES = _by_word(SMALL_WORDS)
