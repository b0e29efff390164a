"""The English side: a probabilistic context-free grammar that says which sentences there are, and how likely each is.

Four rules keep it free of ambiguity:

* A prepositional phrase belongs to the nearest verb on its left; only ``of`` belongs to a noun.
* ``that`` belongs to the noun right before it.
* A noun has an ``of`` phrase or a relative clause, not both.
* In a verb phrase only the last noun phrase may hold a relative clause, so that a clause inside never swallows what belongs
  to the clause around it.

:func:`.trees.parses` checks it: it returns all trees of a sentence.
"""

import re
from functools import cache
from itertools import accumulate, product

from .lexicon import NOUN_FORMS, VERB_FORMS, WORDS

Parts = tuple[str, ...]
Grammar = dict[str, dict[Parts, float]]
"""A symbol to its expansions, each with its probability. A part that is no symbol is a word."""

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
    """The English side as a probabilistic context-free grammar, without the rules whose probability is zero.

    Args:
        relative_clauses: probability that a noun phrase holds a relative clause, if it may hold one
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
