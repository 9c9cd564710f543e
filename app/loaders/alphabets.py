"""Which older encoding makes words of some bytes: the one whose letters some language has, and has often.

Each candidate costs what its letters cost in the language that they fit best: minus the logarithm of how frequent they
are, so that costs of readings of the same bytes can be compared.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from string import printable

# The most frequent letters first. Letters outside ASCII matter most, so the tail is told as well.
ENGLISH = "etaoinsrhldcumfpgwybvkxjqz"
WESTERN = (
    "enirstadhulgocmbfkwzüvpäößjyxq",  # German
    "esaitnrulodcmpévqfbghjàxèêyzçôùâîkûwïëüœæÿ",  # French
    "eaosrnidlctumpbgvyqóíhfzáéjñxúükw",  # Spanish
    "aeosridntcmuplvgqbfãzçhéáxíjóêõâúàkwyôü",  # Portuguese
    "eiaonltrscdupmgvfbzhqèàkùòéìjxyw",  # Italian
    "erntaisdlogmkfvubhpåyøæcjwxzqé",  # Danish and Norwegian
    "eanrtsildomkgväfhupåöbcyjxwzéq",  # Swedish
    "arniesutlðgmkfhváoídjyþböæépóúýxcwzq",  # Icelandic
    "entairodlghsvkmubpwjczfxyëéqïöü",  # Dutch
    "aintesloukämvrjhyöpdgbfcwåqzšž",  # Finnish
    "aiestlunokrdmvgpäjõhüböfzšžcxyqw",  # Estonian
)
CENTRAL = (
    "oeantsilvrkdumpíchzyábjěéřžýčšůgúfťňóďxwq",  # Czech
    "oaeinstvrlkdcmupzhyábjíčšýúéžťľgňôfďxóäŕĺwq",  # Slovak
    "iaeonrzwsctykdpmułjlbągęhóśżfćńźvxq",  # Polish
    "etalnskorzáigémbyvdhjöóőupfícüúűxwq",  # Hungarian
    "eiarntulocsdăpmîşţfvâgbzhjxkwyq",  # Romanian
    "aioenjrstuvkldmpgzbčcšžhćfđxyqw",  # Croatian and Slovene
)
TURKISH = ("aeinrlıkdmtyusboüşzğgçhvcöpfjİâîûwxq",)
BALTIC = ("iasteruonkmlpvdėgjbyšųžąčįęzcūfhwxq", "aiestrnulkopmādvīzēgbcjšūņļģžķčfhxywq")
CYRILLIC = (
    "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё",  # Russian
    "оаинвірелтскдмупьязйгчбхїєжцюшщфґ",  # Ukrainian
    "аеиотнрсвлкдпмзъягубчцжщхюйшфь",  # Bulgarian
    "аиоенрсјтукдвлмпгзбчшњжљцхћђџф",  # Serbian
)
GREEK = ("αοιετσνηυρπκμλςίόθγέάήδχύφώβξζψϊΐ",)
HEBREW = ("יוהלאתרבמשנםעדחקפכגטזןצסךףץ",)
ARABIC = ("اليمونرتبةعدسفهكقأحجشطصىخإذضزثئءغظآؤ",)
THAI = ("านรอกเงมยลวดทสต่ะป้ับีคหิแจพชขใุืู็์ณผธไภำโศถซฟษญ",)
JAPANESE = (
    "のにるたとはしいをでてがなれからさっりすあもこまうくよきんめおけそつだやえどわちみせじばへびずろほげむべひょ"
    "ゆぶごゃねふぐぎぼゅづざぞぬぜぱぽぷぴぃぁぇぺぢぉーンスルトリイアラックドシレジタフロカテマィグバムプオコデ"
    "ニウメサビナブャエュチキズダパミェョハセベガモツネボソノァヴワポペピケゴギザホゲォヤヒユヨヘゼヌゥゾヂ日一人"
    "年大十二本中長出三時行見月分後前生五間上東四今金九入学高円子外八六下来気小七山話女北午百書先名川千水半男西電"
    "校語国会社事者自的方同場手地力内政部定数関動体員作理実表"
)
HALF_WIDTH = "ｰﾝｽﾙﾄﾘｲｱﾗｯｸﾞｼﾚﾀﾌﾛｶﾃﾏｨﾊﾑﾟｵｺﾆｳﾒｻﾋﾅｬｴｭﾁｷﾐｪｮｾﾍﾓﾂﾈﾎｿﾉｧﾜｹｫﾔﾕﾖﾇｩｦ"  # of banks and old programs
CHINESE = (
    "的一是了不在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所"
    "然家种事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实"
)
TAIWANESE = (
    "的一是不了人我在有他這為之大來以個中上們到說國和地也子時道出而要於就下得可你年生自會那後能對著事其裡所去行過"
    "家用發天如然作方成者多日都三小軍二無同麼經法當起與好看學進種將還分此心前面又定見只主沒公從"
)
KOREAN = (
    "이다는에의을가고하지로한서를은기도자사어리인시아나대있해전정일수것그만보라제부주으상구과들여게조면스원장공우"
    "동선국성습니합했었였및된되와러때없음"
)

MARKS = "–—‘’“”„…«»€•¡¿µ\xa0、。・，．！？（）「」『』【】：；　《》〈〉～〜―"
SIGNS = "¢£¤¥¦§¨©ª¬®¯°±²³´¶·¸¹º¼½¾×÷™"  # no word has them within or starts with them
# A language's first letter is 12% of all; each next one is 0.89 times as frequent as the one before.
FIRST, STEP = -log(0.12), -log(0.89)
MARK, RARE, NONE = 5.0, 9.0, 14.0
OTHER = 3.0  # for a word of another language than the text
ODD = 7.0  # each capital after a small letter, change of the script, or sign that a word goes on after
# "l" and "L": small and capital Latin letters, "o" and "O": those of other scripts, "s": signs, "d": digits
ODD_SHAPE = re.compile(r"(?<=[lo])[LO]|(?<=[lL])o|(?<=[oO])[lL]|(?<!d)s(?=[lLoO])|(?<=d)[oO]|[oO](?=d)")
WORD = re.compile(r"[A-Za-z\x80-\U0010ffff]+")
FIRST_OF_CJK = "\u2e80"
# Lone signs of Western texts, seen as Latin-1. Other encodings have letters for these bytes, so a sign must stand
# where those would not: "MIAŁ 20" ends and "że" starts with one.
LONE_SIGN = re.compile(
    r"""(?<![\x80-\xff])(?:
    (?<![A-Za-z]) (?: [£¥¢\x80] (?=\s?\d) | (?:(?<=\d)|(?<=\d\s)) [£¥¢\x80] (?![@-~]) )
    | (?<=\d) ° [CF]? (?![@-~]) | (?<![A-Za-z]) ° [CF] (?![@-~]) | (?<=[nN]) [°º] (?=\s?\d)
    | (?<![A-Za-z]) (?: µ (?:[msgAFVWHlLM]|mol|Pa) (?![@-~]) | §{1,2} (?=\s?\d) | [¶±] (?=\s?\d) | © (?=[\s\d]) )
    | (?<![A-Za-z]) (?<!\d\s) [¼½¾] (?![@-~])
    | (?<=\d) [ªº³] (?![@-~]) | (?<![A-Za-z]) [cdkm]?m ³ (?![@-~]) | (?<=[A-Za-z\d]) ² (?![@-~])
    | (?<=[a-z]) ® (?![@-~])
    | (?<=\d) [×\x96] (?=\d) | (?<=\d\s) × (?=\s\d) | (?<=\d°[CF]) \x96 (?=\d)
    | (?<!\S) [·\x95-\x97] (?!\S) | (?<=[A-Za-z\d]) · (?=[A-Za-z\d])
    | (?<![^\s"'(]) (?<!\d\s) (?: [¡¿] (?=[A-Z][a-z]) | ¿ (?=[A-Za-z][ -~]{0,80}\?) | ¡ (?=[A-Za-z][ -~]{0,80}!) )
    )(?![\x80-\x95\x98-\xff])""",
    re.VERBOSE,
)
# What follows a word of one letter is not the second byte of a character.
LONE_LETTER = re.compile(r"(?<![\w\x80-\xff])[àÀèÈéÉêçñÑóÓôÔíÍöÖøØåÅ](?![\d@-~\x80-\x95\x98-\xff])")
ASCII_LETTER = re.compile("[A-Za-z]")
REPEATS = 8  # how often the same word tells something
LANGUAGES = (
    *(ENGLISH, *WESTERN, *CENTRAL, *TURKISH, *BALTIC, *CYRILLIC, *GREEK, *HEBREW, *ARABIC, *THAI),
    *(JAPANESE, CHINESE, TAIWANESE, KOREAN),
)
FAMILIAR = frozenset("".join(LANGUAGES) + MARKS + printable)  # what most characters of a text are, in small letters


@dataclass(frozen=True)
class Alphabet:
    encoding: str
    languages: tuple[str, ...]
    cost: float  # of how seldom it is met
    # Of encodings with two bytes: the first ones of common characters, and the least second one.
    leads: range = range(0)
    trail: int = 0xA1


CANDIDATES = (  # the first one is that of signs among nothing but ASCII
    Alphabet("cp1252", WESTERN, 0),
    Alphabet("cp1250", CENTRAL, 2),
    Alphabet("cp1254", (*TURKISH, *WESTERN), 2),
    Alphabet("cp1251", CYRILLIC, 2),
    Alphabet("cp1253", GREEK, 2),
    Alphabet("cp932", (JAPANESE, HALF_WIDTH), 2, range(0x81, 0x99), 0x40),
    Alphabet("gb18030", (CHINESE,), 2, range(0xB0, 0xD8)),
    Alphabet("euc_jp", (JAPANESE, HALF_WIDTH), 3, range(0xA4, 0xD0)),
    Alphabet("cp949", (KOREAN,), 2, range(0xB0, 0xC9)),
    Alphabet("big5hkscs", (TAIWANESE,), 3, range(0xA4, 0xC7), 0x40),
    Alphabet("cp1255", HEBREW, 3),
    Alphabet("cp1256", ARABIC, 3),
    Alphabet("cp1257", BALTIC, 4),
    Alphabet("cp874", THAI, 3),
    Alphabet("iso8859-2", CENTRAL, 4),
    Alphabet("iso8859-7", GREEK, 4),
    Alphabet("koi8-u", CYRILLIC, 4),
    Alphabet("cp866", CYRILLIC, 5),
    Alphabet("cp850", WESTERN, 10),
    Alphabet("mac-roman", WESTERN, 10),
)


def by_likelihood(sample: bytes) -> Sequence[Alphabet]:
    """The candidates, that in which the bytes cost least first.

    Lone signs and letters tell no other language than a Western one, however often they come.
    """
    text = LONE_SIGN.sub(" ", sample.decode("latin-1"))
    if ASCII_LETTER.search(text):  # letters among nothing else may be Cyrillic as well
        text = LONE_LETTER.sub(" ", text)
    counts = Counter(text.encode("latin-1").split())
    words = b" ".join(word for word, count in counts.items() for _ in range(min(count, REPEATS)))
    return CANDIDATES if words.isascii() else sorted(CANDIDATES, key=lambda one: _cost(words, one))


def _cost(sample: bytes, candidate: Alphabet) -> float:
    text = sample.decode(candidate.encoding, "replace")
    chars = set(text)
    words = Counter(WORD.findall(text))
    known = {char for char in chars if _common(char, candidate)}
    costs = [_costs(language, chars, known) for language in (ENGLISH, *candidate.languages)]
    odd = len(ODD_SHAPE.findall(text.translate({ord(char): _shape(char) for char in chars})))
    return candidate.cost + odd * ODD + _cost_of_words(words, costs)


def _cost_of_words(words: Mapping[str, int], costs: Sequence[Mapping[str, float]]) -> float:
    """In the language that fits best. English, which comes first, is in all texts; other words may be of others."""
    english, *each = ([sum(one[char] for char in word) for word in words] for one in costs)
    other: list[float] = [min(of_word) + OTHER for of_word in zip(*each, strict=True)]
    numbers = words.values()
    return min(sum(n * min(a, b, c) for n, a, b, c in zip(numbers, one, english, other, strict=True)) for one in each)


def _costs(language: str, chars: set[str], known: set[str]) -> Mapping[str, float]:
    if language[0] > FIRST_OF_CJK:  # of many thousands of characters the most frequent ones make up half of a text
        letters = dict.fromkeys(language, log(2 * len(language)))
    else:
        letters = {letter: FIRST + rank * STEP for rank, letter in enumerate(language)}
    return {char: letters.get(char) or letters.get(char.lower()) or _cost_outside(char, known) for char in chars}


def _cost_outside(char: str, known: set[str]) -> float:
    """Of what is no letter of the language; digits and the like are the same in each encoding."""
    if char.isascii():
        return RARE if char.isalpha() else 0
    if char in MARKS or char in SIGNS:
        return MARK
    return RARE if char in known else NONE


def _common(char: str, candidate: Alphabet) -> bool:
    """Whether it is a letter of any of the languages, or a common character of an encoding of two bytes."""
    if not candidate.leads:
        return any(char in language or char.lower() in language for language in candidate.languages)
    code = char.encode(candidate.encoding, "replace")
    return char > FIRST_OF_CJK and code[0] in candidate.leads and code[-1] >= candidate.trail


def _shape(char: str) -> str:
    if char in SIGNS:
        return "s"
    if char.isdigit():
        return "d"
    if not char.isalpha() or char > FIRST_OF_CJK:
        return " "
    shape = "l" if char < "ɐ" else "o"
    return shape.upper() if char.isupper() else shape
