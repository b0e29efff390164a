"""Transfer: from an English tree to its one translation, whose tokens know the source words that they come from.

The gold links:

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

A particle stands between what it marks and what governs that. It may link to either, also where a word of its own asks for
it.

``the``, ``a``, ``some`` and relative ``that`` have no sure link. Every target token has a link, as an attention always looks
somewhere, and no target token has more than one sure link. So an aligner that names one source word for every target token
can reach an alignment error rate (Och and Ney, 2003) of zero.
"""

from __future__ import annotations

from typing import NamedTuple

from .lexicon import DETERMINERS, GLOSSES, NOUN_FORMS, PARTICLES, TENSES, VERB_FORM_TENSES, VERB_FORMS, WORDS, NounClass
from .trees import Tree, parses

Link = tuple[int, int]
"""Source position and target position, from 0."""


class SentencePair(NamedTuple):
    """A sentence, its translation and the gold links between them."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    sure: tuple[Link, ...]
    """Sure links, sorted."""
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
    """The tokens of a word's translation: none of an article's. Each has a sure link; a particle may link to ``joins``, too."""
    return [
        Token(text, sure=word.start, possible=joins if text in PARTICLES else ())
        for text in GLOSSES[word.symbol].split()
    ]


def _core(tree: Tree) -> NounPhrase:
    """A noun phrase without what follows its noun: determiner, adjectives, noun, then numeral and classifier, or plural."""
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
    """A noun phrase; what follows its noun in English goes before it. Of a prepositional phrase, the noun phrase inside."""
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


def transfer(sentence: Tree) -> SentencePair:
    """The translation of a tree. The class of the noun that heads the subject decides on the final auxiliary."""
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
    return transfer(trees[0])
