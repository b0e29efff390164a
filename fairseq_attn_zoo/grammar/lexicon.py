"""The words of both languages, and what each English word becomes on the Japanese-like side.

Each list has its most frequent word first. The word of rank r is drawn with a probability proportional to 1 / (r + 1), a
law of Zipf and Mandelbrot. No noun or adjective begins with a vowel, so that the article is always ``a``. Only determiners
stand in several lists.
"""

from collections.abc import Iterator
from typing import NamedTuple

NOUNS = """
    dog       dogs       inu       animal
    teacher   teachers   sensei    honoured
    tree      trees      ki        long
    king      kings      ou        honoured
    child     children   kodomo    person
    car       cars       kuruma    machine
    cat       cats       neko      animal
    stone     stones     ishi      small
    doctor    doctors    isha      honoured
    letter    letters    tegami    flat
    man       men        otoko     person
    queen     queens     joou      honoured
    box       boxes      hako      small
    horse     horses     uma       animal
    train     trains     densha    machine
    woman     women      onna      person
    judge     judges     hanji     honoured
    bridge    bridges    hashi     long
    bird      birds      tori      animal
    ticket    tickets    kippu     flat
    farmer    farmers    noufu     person
    bishop    bishops    shikyou   honoured
    clock     clocks     tokei     machine
    fox       foxes      kitsune   animal
    river     rivers     kawa      long
    minister  ministers  daijin    honoured
    ball      balls      tama      small
    thief     thieves    dorobou   person
    plate     plates     sara      flat
    captain   captains   senchou   honoured
    wolf      wolves     ookami    animal
    rope      ropes      nawa      long
    nurse     nurses     kangofu   person
    shirt     shirts     shatsu    flat
    camera    cameras    kamera    machine
    key       keys       kagi      small
"""


class NounClass(NamedTuple):
    """What a class of nouns decides on the Japanese-like side."""

    auxiliary: str
    """Final token of a sentence whose subject is of this class."""
    classifier: str
    """Token after a numeral."""
    plural: str
    """Token after a plural noun without a numeral; things have none."""


NOUN_CLASSES = {
    "honoured": NounClass("irassharu", "mei", "gata"),
    "person": NounClass("iru", "nin", "tachi"),
    "animal": NounClass("iru", "hiki", "tachi"),
    "flat": NounClass("aru", "mai", ""),
    "long": NounClass("aru", "hon", ""),
    "machine": NounClass("aru", "dai", ""),
    "small": NounClass("aru", "ko", ""),
}

VERBS = """
    fall       falls       fell         ochi       intransitive
    stop       stops       stopped      tomari     intransitive
    turn       turns       turned       mawari     intransitive
    wait       waits       waited       machi      intransitive
    burn       burns       burned       moe        intransitive
    disappear  disappears  disappeared  kie        intransitive
    shake      shakes      shook        yure       intransitive
    see        sees        saw          mi         transitive
    find       finds       found        mitsuke    transitive
    help       helps       helped       tasuke     transitive
    follow     follows     followed     oi         transitive
    hide       hides       hid          kakushi    transitive
    break      breaks      broke        kowashi    transitive
    lift       lifts       lifted       mochiage   transitive
    paint      paints      painted      nuri       transitive
    give       gives       gave         age        ditransitive
    show       shows       showed       mise       ditransitive
    send       sends       sent         okuri      ditransitive
    bring      brings      brought      todoke     ditransitive
    sell       sells       sold         uri        ditransitive
"""

WORDS = {
    "determiner.singular": {"the": "", "a": "", "this": "kono", "his": "kare no", "her": "kanojo no"},
    "determiner.plural": {"the": "", "some": "", "these": "kono", "his": "kare no", "her": "kanojo no"},
    "definite.plural": {"the": "", "these": "kono", "his": "kare no", "her": "kanojo no"},
    "numeral": {
        "two": "futa",
        "three": "san",
        "four": "yon",
        "five": "go",
        "six": "roku",
        "ten": "juu",
        "seven": "nana",
    },
    "quality": {
        "big": "ookii",
        "small": "chiisai",
        "new": "atarashii",
        "quiet": "shizuka na",
        "heavy": "omoi",
        "strange": "hen na",
        "long": "nagai",
        "famous": "yuumei na",
    },
    "colour": {"red": "akai", "white": "shiroi", "black": "kuroi", "blue": "aoi", "yellow": "kiiroi"},
    "adverb": {"often": "yoku", "slowly": "yukkuri", "suddenly": "totsuzen", "always": "itsumo", "quietly": "sotto"},
    "preposition": {
        "in": "de",
        "near": "no soba de",
        "on": "no ue de",
        "under": "no shita de",
        "behind": "no ushiro de",
    },
}
FUNCTION_PREPOSITIONS = {"of": "no", "to": "ni", "with": "to"}
PARTICLES = {"no", "na", "ni", "to", "de"}
"""Tokens that join a word or phrase to what it belongs to, and yet translate a word; see :mod:`.transfer`."""

TENSES = {"do": "ru", "does": "ru", "did": "ta", "will": "darou"}
"""An English auxiliary to the tense token of the Japanese-like verb."""
VERB_FORM_TENSES = {"base": "ru", "present": "ru", "past": "ta"}
"""The form of an English verb that has no auxiliary to its tense token."""

DETERMINERS = {**WORDS["determiner.singular"], **WORDS["determiner.plural"]}
GLOSSES = {english: japanese for words in WORDS.values() for english, japanese in words.items()}
GLOSSES.update(FUNCTION_PREPOSITIONS)


class Noun(NamedTuple):
    """What one form of an English noun means; ``number`` is singular or plural."""

    japanese: str
    noun_class: NounClass
    number: str


class Verb(NamedTuple):
    """What one form of an English verb means; ``form`` is a key of :data:`VERB_FORM_TENSES`."""

    japanese: str
    kind: str
    form: str


def _noun_forms() -> Iterator[tuple[str, Noun]]:
    for singular, plural, japanese, noun_class in map(str.split, NOUNS.strip().splitlines()):
        yield singular, Noun(japanese, NOUN_CLASSES[noun_class], "singular")
        yield plural, Noun(japanese, NOUN_CLASSES[noun_class], "plural")


def _verb_forms() -> Iterator[tuple[str, Verb]]:
    for base, present, past, japanese, kind in map(str.split, VERBS.strip().splitlines()):
        yield base, Verb(japanese, kind, "base")
        yield present, Verb(japanese, kind, "present")
        yield past, Verb(japanese, kind, "past")


NOUN_FORMS = dict(_noun_forms())
VERB_FORMS = dict(_verb_forms())
