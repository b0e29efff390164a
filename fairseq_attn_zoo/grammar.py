"""A synchronous grammar that writes a parallel corpus whose word alignments are known.

Real corpora mix every difficulty and have no gold alignment, so they cannot say *why* one attention mechanism does
better than another. Here each sentence of an English-like language has exactly one translation into a Japanese-like
one, with gold links. What is left to learn is what attention is for:

* **reordering**: subject - verb - object becomes subject - object - verb, and what follows the verb comes back
  mirrored;
* **nested reordering**: a relative clause follows its noun in English and precedes it on the other side;
* **one word to several**: ``under`` becomes ``no shita de``, ``his`` becomes ``kare no``, ``saw`` becomes ``mi ta``;
* **words without a counterpart**: articles and relative ``that`` on one side, case particles on the other;
* **agreement over distance**: the last token agrees with the noun that heads the subject (``irassharu`` for the
  honoured, ``iru`` for other living beings, ``aru`` for things), whatever stands between the two; classifiers after a
  numeral agree with their noun.

Nouns and verbs are drawn independently of each other, so that no word can be guessed from its neighbours; the
sentences are grammatical and mean nothing.

    >>> pair = translate("the teacher that the dogs saw did not help three cats")
    >>> print(pair.english, pair.japanese, pair.pharaoh, sep="\\n")
    the teacher that the dogs saw did not help three cats
    inu tachi ga mi ta sensei wa neko san hiki wo tasuke nai ta irassharu
    0?6 1-5 1?6 1?14 3?2 4-0 4-1 4?2 5?2 5-3 5-4 6-13 7-12 8?6 8?10 8-11 8?12 8?13 8?14 9-8 9?9 10-7 10?9 10?10

**One source, one tree, one target.** Four rules keep the English side free of ambiguity. A prepositional phrase
belongs to the nearest verb on its left; only ``of`` belongs to a noun. ``that`` belongs to the noun right before it.
A noun has an ``of`` phrase or a relative clause, not both. In a verb phrase only the last noun phrase may hold a
relative clause, so that a clause inside never swallows what belongs to the clause around it. :func:`parses` checks
it: it returns all trees.

**Gold links.** A line of an ``.align`` file holds links between 0-based positions, sorted and separated by spaces:
``i-j`` is a sure link and ``i?j`` a possible one from source word ``i`` to target token ``j``. A sure link is
possible by definition and is not written twice.

=============================================  ==============================  =====================================
target token                                   sure link to                    possible links to
=============================================  ==============================  =====================================
noun, plural ``tachi`` or ``gata``, adjective  the word that it translates
stem, numeral, adverb, ``kono``, ``kare``
``na`` of an adjective, ``no`` of ``kare no``  the word that it translates     the noun that it is joined to
verb stem                                      the verb
tense ``ru``, ``ta``, ``darou``                ``do``, ``does``, ``did`` or    the verb
                                               ``will``; without one the verb
negation ``nai``                               ``not``                         the verb
``de``, ``to``, ``ni``, ``no`` of a            their preposition               head noun and determiner of its
preposition                                                                    phrase, verb or noun that governs it
``soba``, ``ue``, ``shita``, ``ushiro``        their preposition
topic ``wa``, subject ``ga``, object ``wo``                                    head noun and determiner of its
                                                                               phrase, verb that governs it
classifier                                                                     its noun, its numeral
final ``irassharu``, ``iru``, ``aru``                                          head noun of the subject, main verb
=============================================  ==============================  =====================================

A particle stands between what it marks and what governs that, so it may link to either, whether a word of its own asks
for it or not.

``the``, ``a``, ``some`` and relative ``that`` have no sure link. Every target token has a link, as an attention
always looks somewhere, and none has more than one sure link, so an aligner that names one source word for every
target token can reach an alignment error rate (Och and Ney, 2003) of zero.

From the command line::

    python -m fairseq_attn_zoo.grammar OUT_FOLDER --train 20000 --seed 1
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from bisect import bisect
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate, islice, product
from pathlib import Path

# Plain NamedTuples throughout: when this file runs as a script, the package's own `inspect` hides the standard one,
# which `dataclasses` imports.
from typing import Any, NamedTuple

LONGEST = 100
"""The greatest ``max_length``, in source words; the table of lengths grows with its square."""

PATIENCE = 2000
"""Known sentences drawn in a row after which no new one is expected any more."""

# --- The words, most frequent first. ------------------------------------------------------------------------------
# The word of rank r in its list is drawn with a probability proportional to 1 / (r + 1), a law of Zipf and Mandelbrot.
# No noun or adjective begins with a vowel, so that the article is always `a`. Only determiners stand in several lists.

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
"""Tokens that join a word or phrase to what it belongs to and translate a word all the same; see the gold links."""

TENSES = {"do": "ru", "does": "ru", "did": "ta", "will": "darou"}
"""English auxiliary to the tense token of the Japanese-like verb."""
VERB_FORM_TENSES = {"base": "ru", "present": "ru", "past": "ta"}
"""Form of an English verb without an auxiliary to the same tokens."""

DETERMINERS = {**WORDS["determiner.singular"], **WORDS["determiner.plural"]}
GLOSSES = {english: japanese for words in WORDS.values() for english, japanese in words.items()}
GLOSSES.update(FUNCTION_PREPOSITIONS)


class Noun(NamedTuple):
    """What one form of an English noun says; ``number`` is singular or plural."""

    japanese: str
    noun_class: NounClass
    number: str


class Verb(NamedTuple):
    """What one form of an English verb says; ``form`` is a key of :data:`VERB_FORM_TENSES`."""

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


# --- The source grammar: which English sentences there are, and how likely each is. -------------------------------

Parts = tuple[str, ...]
Grammar = dict[str, dict[Parts, float]]
"""Symbol to its expansions, each with its probability. A part that is no symbol is a word."""

# NUMBER is singular or plural, KIND a kind of verb; {relative} is the share of relative clauses. An `open` phrase may
# hold a relative clause and ends its verb phrase, a `closed` one may not. A `gapped` verb phrase has lost its object to
# the front.
RULES = """
    sentence              = 0.65 noun_phrase.singular verb_phrase.singular
                          | 0.35 noun_phrase.plural verb_phrase.plural

    noun_phrase.NUMBER    = {plain} core.NUMBER
                          | {owned} core.NUMBER of noun_phrase.owner
                          | {relative} core.NUMBER relative.NUMBER
    noun_phrase.owner     = {owner_singular} core.singular
                          | {owner_plural} core.plural
                          | {owner_singular_relative} core.singular relative.singular
                          | {owner_plural_relative} core.plural relative.plural
    noun_phrase.closed    = 0.60 core.singular
                          | 0.30 core.plural
                          | 0.06 core.singular of noun_phrase.bare
                          | 0.04 core.plural of noun_phrase.bare
    noun_phrase.bare      = 0.65 core.singular
                          | 0.35 core.plural

    core.singular         = 1.00 determiner.singular described.singular
    core.plural           = 0.70 determiner.plural described.plural
                          | 0.20 numeral described.plural
                          | 0.10 definite.plural numeral described.plural
    described.NUMBER      = 0.65 noun.NUMBER
                          | 0.20 quality noun.NUMBER
                          | 0.10 colour noun.NUMBER
                          | 0.05 quality colour noun.NUMBER

    relative.NUMBER       = 0.50 that verb_phrase.NUMBER
                          | 0.35 that noun_phrase.singular gapped.singular
                          | 0.15 that noun_phrase.plural gapped.plural

    verb_phrase.NUMBER    = 0.18 verb.intransitive.NUMBER
                          | 0.15 verb.intransitive.NUMBER adjuncts
                          | 0.35 verb.transitive.NUMBER object.open
                          | 0.12 verb.transitive.NUMBER object.closed adjuncts
                          | 0.15 verb.ditransitive.NUMBER object.closed recipient.open
                          | 0.05 verb.ditransitive.NUMBER object.closed recipient.closed adjuncts
    gapped.NUMBER         = 0.60 verb.transitive.NUMBER
                          | 0.15 verb.transitive.NUMBER adjuncts
                          | 0.20 verb.ditransitive.NUMBER recipient.open
                          | 0.05 verb.ditransitive.NUMBER recipient.closed adjuncts
    adjuncts              = 0.30 companion.open
                          | 0.60 place.open
                          | 0.10 companion.closed place.open
    recipient.open        = 1.00 to object.open
    recipient.closed      = 1.00 to object.closed
    companion.open        = 1.00 with object.open
    companion.closed      = 1.00 with object.closed
    place.open            = 1.00 preposition object.open
    object.open           = 0.65 noun_phrase.singular
                          | 0.35 noun_phrase.plural
    object.closed         = 1.00 noun_phrase.closed

    verb.KIND.singular    = 0.30 present.KIND
                          | 0.40 past.KIND
                          | 0.11 will base.KIND
                          | 0.06 does not base.KIND
                          | 0.09 did not base.KIND
                          | 0.04 will not base.KIND
    verb.KIND.plural      = 0.30 base.KIND
                          | 0.40 past.KIND
                          | 0.11 will base.KIND
                          | 0.06 do not base.KIND
                          | 0.09 did not base.KIND
                          | 0.04 will not base.KIND
    base.KIND             = 0.85 verb_base.KIND
                          | 0.15 adverb verb_base.KIND
    present.KIND          = 0.85 verb_present.KIND
                          | 0.15 adverb verb_present.KIND
    past.KIND             = 0.85 verb_past.KIND
                          | 0.15 adverb verb_past.KIND
"""


@cache
def source_grammar(relative_clauses: float = 0.2) -> Grammar:
    """The English side as a probabilistic context-free grammar, without the rules that have no probability.

    ``relative_clauses`` is the probability that a noun phrase which may hold a relative clause does.
    """
    simple = 1 - relative_clauses
    rules = RULES.format(
        plain=0.85 * simple,
        owned=0.15 * simple,
        relative=relative_clauses,
        owner_singular=0.65 * simple,
        owner_plural=0.35 * simple,
        owner_singular_relative=0.65 * relative_clauses,
        owner_plural_relative=0.35 * relative_clauses,
    )
    grammar: Grammar = {}
    symbol = ""
    for line in filter(None, map(str.strip, rules.splitlines())):
        left, right = re.split("[=|]", line)
        symbol = left.strip() or symbol
        probability, *parts = right.split()
        for number, kind in product(("singular", "plural"), ("intransitive", "transitive", "ditransitive")):
            filled = [part.replace("NUMBER", number).replace("KIND", kind) for part in (symbol, *parts)]
            if float(probability):
                grammar.setdefault(filled[0], {})[tuple(filled[1:])] = float(probability)

    lexicon = {category: list(words) for category, words in WORDS.items()}
    for word, noun in NOUN_FORMS.items():
        lexicon.setdefault(f"noun.{noun.number}", []).append(word)
    for word, verb in VERB_FORMS.items():
        lexicon.setdefault(f"verb_{verb.form}.{verb.kind}", []).append(word)
    for category, words in lexicon.items():
        *_, total = accumulate(1 / (rank + 1) for rank in range(1, len(words) + 1))
        grammar[category] = {(word,): 1 / (rank + 1) / total for rank, word in enumerate(words, start=1)}
    return grammar


# --- Trees: drawn from the grammar, or read from a sentence. ------------------------------------------------------


class Tree(NamedTuple):
    """What became of a symbol of the grammar; a tree without children is a word."""

    symbol: str
    start: int
    """0-based position of the first word in the source sentence."""
    children: tuple[Tree, ...] = ()

    @property
    def category(self) -> str:
        """The symbol without its features: ``noun_phrase`` of ``noun_phrase.singular``."""
        return self.symbol.partition(".")[0]

    def words(self) -> Iterator[Tree]:
        """The words from left to right."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.words()


class LengthTable:
    r"""How much of the grammar has which length, and trees of a given length.

    The weight of all ways in which a sequence of parts :math:`X_1 \dots X_m` becomes :math:`n` words is the inside
    recursion over lengths instead of spans,

    .. math:: w(X, n) = \sum_{X \to \alpha} p(\alpha) \, w(\alpha, n), \qquad
              w(X_1 \dots X_m, n) = \sum_k w(X_1, k) \, w(X_2 \dots X_m, n - k)

    Drawing with these weights gives a sentence of exactly the wanted length, with the probability that the grammar
    gives it among the sentences of that length, and nothing is drawn in vain. With every :math:`p = 1` the weights
    count trees, which are sentences, as no sentence has two trees.
    """

    def __init__(self, grammar: Grammar, max_length: int) -> None:
        self.grammar = grammar
        self._weights: dict[tuple[Parts, int], float] = {}
        self._choices: dict[tuple[Parts, int], tuple[tuple, list[float]]] = {}
        # Upwards, the recursion stays shallow: nearly all that a length needs is known from the one before it.
        self.sentences = {length: self.weight(("sentence",), length) for length in range(1, max_length + 1)}
        """Length to the weight of all sentences of that length."""

    def weight(self, parts: Parts, length: int) -> float:
        """Weight of all ways in which ``parts`` become exactly ``length`` words."""
        if len(parts) == 1 and parts[0] not in self.grammar:
            return int(length == 1)
        key = parts, length
        if key not in self._weights:
            # A loop and not `sum`, whose rounding differs between Python versions.
            total: float = 0
            for _, weight in self._steps(parts, length):
                total += weight
            self._weights[key] = total
        return self._weights[key]

    def _steps(self, parts: Parts, length: int) -> Iterator[tuple[Any, float]]:
        """Expansions of a single part, or lengths of the first of several; each with its weight, if it has any."""
        if len(parts) == 1:
            for expansion, probability in self.grammar[parts[0]].items():
                if weight := probability * self.weight(expansion, length):
                    yield expansion, weight
        else:
            for first in range(1, length - len(parts) + 2):
                if weight := self.weight(parts[:1], first) * self.weight(parts[1:], length - first):
                    yield first, weight

    def draw(self, generator: random.Random, length: int) -> Tree:
        """A sentence of ``length`` words."""
        (sentence,) = self._draw(generator, ("sentence",), length, start=0)
        return sentence

    def _draw(self, generator: random.Random, parts: Parts, length: int, start: int) -> tuple[Tree, ...]:
        if len(parts) == 1 and parts[0] not in self.grammar:
            return (Tree(parts[0], start),)
        key = parts, length
        if key not in self._choices:
            steps, weights = zip(*self._steps(parts, length), strict=True)
            self._choices[key] = steps, list(accumulate(weights))
        step = _pick(generator, *self._choices[key])
        if len(parts) == 1:
            return (Tree(parts[0], start, self._draw(generator, step, length, start)),)
        first = self._draw(generator, parts[:1], step, start)
        return first + self._draw(generator, parts[1:], length - step, start + step)


def _pick(generator: random.Random, options: Sequence[Any], cumulative: list[float]) -> Any:
    """One of the options, given the running sums of their weights.

    Only ``random()`` is promised to give the same numbers in every version of Python, so everything is drawn with it.
    """
    return options[min(bisect(cumulative, generator.random() * cumulative[-1]), len(options) - 1)]


def parses(sentence: str) -> list[Tree]:
    """All trees of an English sentence: one for a sentence of the grammar, none for anything else."""
    grammar, words = source_grammar(), sentence.split()

    @cache
    def readings(parts: Parts, start: int) -> list[tuple[tuple[Tree, ...], int]]:
        """What ``parts`` may be from position ``start`` on, and where each reading ends."""
        if not parts:
            return [((), start)]
        if len(parts) > 1:
            return [
                (first + rest, end)
                for first, middle in readings(parts[:1], start)
                for rest, end in readings(parts[1:], middle)
            ]
        if parts[0] not in grammar:
            return [((Tree(parts[0], start),), start + 1)] if words[start : start + 1] == [parts[0]] else []
        return [
            ((Tree(parts[0], start, children),), end)
            for expansion in grammar[parts[0]]
            for children, end in readings(expansion, start)
        ]

    return [tree for (tree,), end in readings(("sentence",), 0) if end == len(words)]


# --- Transfer: from an English tree to target tokens that remember where they come from. --------------------------


class Token(NamedTuple):
    """A target token with the source positions of its links."""

    text: str
    sure: int | None = None
    possible: tuple[int, ...] = ()


class NounPhrase(NamedTuple):
    """A translated noun phrase and what its neighbours need to know of it."""

    tokens: list[Token]
    noun_class: NounClass
    head: int
    """Source position of the head noun."""
    marked: tuple[int, ...]
    """Source positions of determiner and head noun, to which a case particle is linked."""


class Clause(NamedTuple):
    """A translated clause and the source position of its verb."""

    tokens: list[Token]
    verb: int


def _gloss(word: Tree, joins: tuple[int, ...] = ()) -> list[Token]:
    """Every token of a word's translation is sure; an article has none. A particle may link to what it joins, too."""
    return [
        Token(text, sure=word.start, possible=joins if text in PARTICLES else ())
        for text in GLOSSES[word.symbol].split()
    ]


def _core(tree: Tree) -> NounPhrase:
    """Determiner, adjectives and noun, then numeral and classifier or the plural token."""
    *modifiers, head = tree.words()
    noun = NOUN_FORMS[head.symbol]
    before: list[Token] = []
    after = []
    if noun.number == "plural" and noun.noun_class.plural:
        after = [Token(noun.noun_class.plural, sure=head.start)]
    marked = [head.start]
    for word in modifiers:
        if word.symbol in WORDS["numeral"]:
            after = [*_gloss(word), Token(noun.noun_class.classifier, possible=(word.start, head.start))]
        else:
            before += _gloss(word, joins=(head.start,))
        if word.symbol in DETERMINERS:
            marked.append(word.start)
    tokens = [*before, Token(noun.japanese, sure=head.start), *after]
    return NounPhrase(tokens, noun.noun_class, head.start, tuple(marked))


def _noun_phrase(tree: Tree) -> NounPhrase:
    """Whatever follows the noun in English goes before it; of a prepositional phrase, the noun phrase inside."""
    while tree.category != "noun_phrase":
        tree = tree.children[-1]
    core_tree, *after = tree.children
    core = _core(core_tree)
    before: list[Token] = []
    if len(after) == 2:
        of, owner = after
        possessor = _noun_phrase(owner)
        before = possessor.tokens + _gloss(of, joins=(*possessor.marked, core.head))
    elif after:
        _, *subject, verb_phrase = after[0].children
        before = _clause(verb_phrase, *map(_noun_phrase, subject), particle="ga").tokens
    return core._replace(tokens=before + core.tokens)


def _clause(verb_phrase: Tree, subject: NounPhrase | None = None, *, particle: str) -> Clause:
    """Subject, the mirrored rest of the English verb phrase, verb; a subject relative has no subject of its own."""
    verb_group, *arguments = verb_phrase.children
    if arguments and arguments[-1].category == "adjuncts":
        arguments[-1:] = arguments[-1].children
    verb_tokens, verb = _verb(verb_group)
    tokens: list[Token] = []
    if subject:
        tokens += [*subject.tokens, Token(particle, possible=(*subject.marked, verb))]
    for argument in reversed(arguments):
        phrase = _noun_phrase(argument)
        tokens += phrase.tokens
        if argument.category == "object":
            tokens.append(Token("wo", possible=(*phrase.marked, verb)))
        else:
            preposition = next(argument.words())
            tokens += _gloss(preposition, joins=(*phrase.marked, verb))
    return Clause(tokens + verb_tokens, verb)


def _verb(tree: Tree) -> Clause:
    """Adverb, stem, negation, tense."""
    *before, verb = tree.words()
    form = VERB_FORMS[verb.symbol]
    adverb: list[Token] = []
    negation: list[Token] = []
    tense = Token(VERB_FORM_TENSES[form.form], sure=verb.start)
    for word in before:
        if word.symbol in TENSES:
            tense = Token(TENSES[word.symbol], sure=word.start, possible=(verb.start,))
        elif word.symbol == "not":
            negation = [Token("nai", sure=word.start, possible=(verb.start,))]
        else:
            adverb = _gloss(word)
    return Clause([*adverb, Token(form.japanese, sure=verb.start), *negation, tense], verb.start)


# --- Sentence pairs and corpora. ----------------------------------------------------------------------------------

Link = tuple[int, int]


class SentencePair(NamedTuple):
    """A sentence, its translation and the gold links between them."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    sure: tuple[Link, ...]
    """Sure links (source position, target position), sorted."""
    possible: tuple[Link, ...]
    """Links that are only possible, sorted; none of them is sure."""

    @property
    def english(self) -> str:
        """The line of the ``.en`` file."""
        return " ".join(self.source)

    @property
    def japanese(self) -> str:
        """The line of the ``.ja`` file."""
        return " ".join(self.target)

    @property
    def pharaoh(self) -> str:
        """The line of the ``.align`` file: ``i-j`` for sure links and ``i?j`` for possible ones."""
        links = [(i, j, "-") for i, j in self.sure] + [(i, j, "?") for i, j in self.possible]
        return " ".join(f"{i}{mark}{j}" for i, j, mark in sorted(links))


def _transfer(sentence: Tree) -> SentencePair:
    """Translate a tree. The final auxiliary agrees over distance: the class of the subject's head decides it."""
    subject_tree, verb_phrase = sentence.children
    subject = _noun_phrase(subject_tree)
    clause = _clause(verb_phrase, subject, particle="wa")
    auxiliary = Token(subject.noun_class.auxiliary, possible=(subject.head, clause.verb))
    tokens = [*clause.tokens, auxiliary]
    return SentencePair(
        source=tuple(word.symbol for word in sentence.words()),
        target=tuple(token.text for token in tokens),
        sure=tuple(sorted((token.sure, j) for j, token in enumerate(tokens) if token.sure is not None)),
        possible=tuple(sorted((i, j) for j, token in enumerate(tokens) for i in token.possible)),
    )


def translate(sentence: str) -> SentencePair:
    """The one correct translation of an English sentence of the grammar, to probe a model with minimal pairs.

    Raises:
        ValueError: if the sentence does not belong to the grammar.
    """
    trees = parses(sentence)
    if not trees:
        raise ValueError(f"not a sentence of this grammar: {sentence!r}")
    return _transfer(trees[0])


def generate(
    size: int, *, min_length: int = 4, max_length: int = 20, relative_clauses: float = 0.2, seed: int = 1
) -> list[SentencePair]:
    """Draw ``size`` different sentences with their translations; the first ones do not depend on ``size``.

    Args:
        size: number of sentence pairs.
        min_length: fewest words of a source sentence.
        max_length: most words of a source sentence, at most :data:`LONGEST`.
        relative_clauses: probability, before the length is taken into account, that a noun phrase which may hold a
            relative clause does. Long sentences have more of them, as they are hardly made otherwise.
        seed: of the random generator; the same seed gives the same sentences on every machine.

    Raises:
        ValueError: if no sentence, or not enough different ones, can have such lengths.
    """
    if size < 0:
        raise ValueError(f"the number of sentences must not be negative: {size}")
    if seed < 0:
        raise ValueError(f"the seed must not be negative: {seed}")
    if not 0 <= relative_clauses <= 1:
        raise ValueError(f"the probability of relative clauses must be between 0 and 1: {relative_clauses}")
    if min_length < 1:
        raise ValueError(f"the minimum length must be at least 1 word: {min_length}")
    if max_length > LONGEST:
        raise ValueError(f"the maximum length must not exceed {LONGEST} words: {max_length}")
    if min_length > max_length:
        raise ValueError(f"the minimum length must not exceed the maximum length: {min_length} > {max_length}")
    grammar = source_grammar(relative_clauses)
    _refuse_too_few(grammar, min_length, max_length, size)

    table = LengthTable(grammar, max_length)
    lengths = [length for length in range(min_length, max_length + 1) if table.sentences[length]]
    if not lengths:  # they exist, but their probability is below the smallest float
        raise ValueError(f"relative clauses are too rare for sentences of {min_length} to {max_length} words")
    cumulative = list(accumulate(table.sentences[length] for length in lengths))
    generator = random.Random(seed)
    pairs: dict[tuple[str, ...], SentencePair] = {}
    repeated = 0
    while len(pairs) < size:
        tree = table.draw(generator, _pick(generator, lengths, cumulative))
        source = tuple(word.symbol for word in tree.words())
        if source not in pairs:
            pairs[source] = _transfer(tree)
            repeated = 0
        elif (repeated := repeated + 1) == PATIENCE:
            raise ValueError(
                f"found only {len(pairs)} of {size} different sentences of {min_length} to {max_length} words; "
                "ask for fewer or for a wider range of lengths"
            )
    return list(pairs.values())


def _refuse_too_few(grammar: Grammar, min_length: int, max_length: int, size: int) -> None:
    """Raise ValueError, with what would be possible, unless ``size`` different sentences have such lengths."""
    every_tree_once: Grammar = {symbol: dict.fromkeys(expansions, 1) for symbol, expansions in grammar.items()}
    counts = LengthTable(every_tree_once, max_length).sentences
    existing = sum(counts[length] for length in range(min_length, max_length + 1))
    if not existing:
        counts = LengthTable(every_tree_once, LONGEST).sentences
        lengths = [length for length, count in counts.items() if count]
        limit = f"shortest has {lengths[0]}" if max_length < lengths[0] else f"longest has {lengths[-1]}"
        raise ValueError(f"no sentence has {min_length} to {max_length} words: with these relative clauses the {limit}")
    if existing < size:
        raise ValueError(
            f"{size} different sentences asked for, but only {existing} have {min_length} to {max_length} words"
        )


def write_corpus(
    folder: str | Path, *, train: int = 20000, valid: int = 500, test: int = 500, **options: Any
) -> dict[str, list[SentencePair]]:
    """Write ``{train,valid,test}.{en,ja,align}`` into ``folder`` and return the pairs of each split.

    No source sentence occurs twice in the corpus. Test and validation sentences are drawn first, so that they stay the
    same, and a smaller training set is the beginning of a larger one, when ``train`` alone is changed. ``options`` are
    those of :func:`generate`.

    Raises:
        ValueError: as :func:`generate` does, before anything is written.
    """
    sizes = {"test": test, "valid": valid, "train": train}
    for split, size in sizes.items():
        if size < 0:
            raise ValueError(f"the number of {split} sentences must not be negative: {size}")
    pairs = iter(generate(sum(sizes.values()), **options))
    splits = {split: list(islice(pairs, size)) for split, size in sizes.items()}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for split, split_pairs in splits.items():
        for suffix, attribute in ("en", "english"), ("ja", "japanese"), ("align", "pharaoh"):
            with open(folder / f"{split}.{suffix}", "w", encoding="utf-8", newline="\n") as file:
                file.writelines(getattr(pair, attribute) + "\n" for pair in split_pairs)
    return splits


def main(arguments: list[str] | None = None) -> int:
    """The command line; ``arguments`` default to those of the process."""
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_attn_zoo.grammar",
        description="Write an English-like to Japanese-like parallel corpus with gold word alignments: "
        "{train,valid,test}.en, .ja and .align (i-j is a sure link, i?j a possible one, positions from 0). "
        "Each sentence has exactly one correct translation and occurs once in the whole corpus.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("folder", metavar="OUT_FOLDER", help="where the nine files go; made if it does not exist")
    parser.add_argument("--train", type=int, default=20000, metavar="N", help="number of training sentences")
    parser.add_argument("--valid", type=int, default=500, metavar="N", help="number of validation sentences")
    parser.add_argument("--test", type=int, default=500, metavar="N", help="number of test sentences")
    parser.add_argument("--min-length", type=int, default=4, metavar="N", help="fewest words of an English sentence")
    parser.add_argument(
        "--max-length", type=int, default=20, metavar="N", help=f"most words of an English sentence, up to {LONGEST}"
    )
    parser.add_argument(
        "--relative-clauses",
        type=float,
        default=0.2,
        metavar="P",
        help="probability that a noun phrase which may hold a relative clause does; 0 for none at all. "
        "Long sentences hold more of them",
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="the same seed writes the same corpus on every machine"
    )
    options = vars(parser.parse_args(arguments))
    try:
        splits = write_corpus(**options)
    except (ValueError, OSError) as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 2
    for split, pairs in splits.items():
        words, tokens = (sum(len(getattr(pair, side)) for pair in pairs) for side in ("source", "target"))
        mean = f", {words / len(pairs):.1f} English words and {tokens / len(pairs):.1f} tokens each" if pairs else ""
        print(f"{split}: {len(pairs)} sentences{mean}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
