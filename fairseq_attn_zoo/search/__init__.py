"""Beam search for the models of this package: fairseq's hypotheses, scores and order of ties in less time.

fairseq's generator makes log-probabilities of the whole vocabulary for every hypothesis, looks at each of them eight times
and sorts them. Here they are made in place and read once, and what is left to sort is a few hundred values per sentence
(:mod:`.candidates`). Which hypotheses go on and which have ended is plain Python over a few numbers per sentence
(:mod:`.beam`). The first word is read once per sentence, a model's state is reordered once per word (:mod:`.reader`), and
a sentence that is done leaves the batch at once (:mod:`.generator`).
"""

from .generator import AligningBeamSearchGenerator, BeamSearchGenerator

__all__ = ["AligningBeamSearchGenerator", "BeamSearchGenerator"]
