"""sacreBLEU's scores and significance test, on tokenised text as it is."""

import logging
import math
from typing import Any


def corpus_scores(hypotheses: list[str], references: list[str]) -> dict[str, Any]:
    """BLEU of the tokens (``--tokenize none``) and chrF, with their signatures."""
    from sacrebleu.metrics import BLEU, CHRF

    found: dict[str, Any] = {}
    for name, metric in (("bleu", BLEU(tokenize="none", force=True)), ("chrf", CHRF())):
        found[name] = metric.corpus_score(hypotheses, [references]).score
        found[f"{name}_signature"] = str(metric.get_signature())
    return found


def paired_bootstrap(baseline: list[str], others: dict[str, list[str]], references: list[str]) -> dict[str, float]:
    """p of each system against the baseline (Koehn 2004; sacreBLEU's paired bootstrap, 1,000 resamples, its fixed seed).

    p is the probability, if the two were equally good, of a difference at least as large as the one seen. Two cases in which
    sacreBLEU says 0.001 are 1 here: scores that are equal, where it counts larger differences only; and two systems without
    one right 4-gram, whose BLEU is 0 but for the smoothing, which is the same in every resample.
    """
    from sacrebleu.metrics import BLEU
    from sacrebleu.significance import PairedTest

    logging.getLogger("sacrebleu").setLevel(logging.WARNING)  # it would tell each step
    if not others:
        return {}
    bleu = BLEU(tokenize="none", force=True)
    systems = [("baseline", baseline), *others.items()]
    _, scores = PairedTest(systems, {"BLEU": bleu}, [references], test_type="bs")()
    of_baseline, *of_others = scores[next(key for key in scores if key != "System")]
    without_4_grams = {name for name, texts in systems if not bleu.corpus_score(texts, [references]).counts[-1]}
    found = {}
    for name, result in zip(others, of_others, strict=True):
        equal = math.isclose(result.score, of_baseline.score, abs_tol=1e-9) or {"baseline", name} <= without_4_grams
        found[name] = 1.0 if equal else result.p_value
    return found


def bleu_by_length(hypotheses: list[str], references: list[str], sources: list[str], groups: int = 6) -> list[dict]:
    """BLEU of the test set in groups of equally many sentences, by the words of the source.

    Sentences of one length stay in one group.
    """
    from sacrebleu.metrics import BLEU

    by_length = sorted(range(len(sources)), key=lambda n: (len(sources[n].split()), n))
    found, begin = [], 0
    for group in range(1, groups + 1):
        end = max(begin, round(len(by_length) * group / groups))
        while 0 < end < len(by_length) and length(sources, by_length[end]) == length(sources, by_length[end - 1]):
            end += 1
        numbers, begin = by_length[begin:end], end
        if numbers:
            score = BLEU(tokenize="none", force=True, effective_order=False).corpus_score(
                [hypotheses[n] for n in numbers], [[references[n] for n in numbers]]
            )
            lengths = [length(sources, n) for n in numbers]
            found.append(
                {
                    "shortest": min(lengths),
                    "longest": max(lengths),
                    "mean": sum(lengths) / len(lengths),
                    "sentences": len(numbers),
                    "bleu": score.score,
                }
            )
    return found


def length(sentences: list[str], number: int) -> int:
    return len(sentences[number].split())
