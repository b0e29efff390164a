r"""A synchronous grammar that writes a parallel corpus whose word alignments are known.

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

Nouns and verbs are drawn independently of each other, so that no word can be guessed from its neighbours. The
sentences are grammatical and mean nothing.

    >>> pair = translate("the teacher that the dogs saw did not help three cats")
    >>> print(pair.english, pair.japanese, pair.pharaoh, sep="\n")
    the teacher that the dogs saw did not help three cats
    inu tachi ga mi ta sensei wa neko san hiki wo tasuke nai ta irassharu
    0?6 1-5 1?6 1?14 3?2 4-0 4-1 4?2 5?2 5-3 5-4 6-13 7-12 8?6 8?10 8-11 8?12 8?13 8?14 9-8 9?9 10-7 10?9 10?10

The last line is that of the ``.align`` file. It holds links between 0-based positions, sorted and separated by spaces:
``i-j`` is a sure link and ``i?j`` a possible one from source word ``i`` to target token ``j``. A sure link is
possible by definition and is not written twice.

From the command line::

    python -m fairseq_attn_zoo.grammar OUT_FOLDER --train 20000 --seed 1

:mod:`.lexicon` has the words, :mod:`.source` the rules of the English side, :mod:`.trees` draws and parses its sentences,
:mod:`.transfer` translates them and says which links are gold, and :mod:`.corpus` writes the files.
"""

from .cli import main
from .corpus import LONGEST, generate, version, write_corpus
from .lexicon import NOUN_CLASSES, NOUN_FORMS, TENSES, VERB_FORMS, Noun, NounClass, Verb
from .source import Grammar, source_grammar
from .transfer import Link, SentencePair, translate
from .trees import LengthTable, Tree, parses

__all__ = [
    "LONGEST",
    "NOUN_CLASSES",
    "NOUN_FORMS",
    "TENSES",
    "VERB_FORMS",
    "Grammar",
    "LengthTable",
    "Link",
    "Noun",
    "NounClass",
    "SentencePair",
    "Tree",
    "Verb",
    "generate",
    "main",
    "parses",
    "source_grammar",
    "translate",
    "version",
    "write_corpus",
]
