"""sacreBLEU's scores and significance test, on tokenised text as it is."""

import logging
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
    """p of each system against the baseline (Koehn 2004; sacreBLEU's paired bootstrap, 1,000 resamples, its fixed seed)."""
    from sacrebleu.metrics import BLEU
    from sacrebleu.significance import PairedTest

    logging.getLogger("sacrebleu").setLevel(logging.WARNING)  # it would tell each step
    # Of equal translations sacreBLEU says p = 0.001: no resample's difference exceeds theirs, which is 0.
    found = {name: 1.0 for name, translations in others.items() if translations == baseline}
    different = [(name, translations) for name, translations in others.items() if name not in found]
    if different:
        bleu = BLEU(tokenize="none", force=True)
        _, scores = PairedTest([("baseline", baseline), *different], {"BLEU": bleu}, [references], test_type="bs")()
        name = next(key for key in scores if key != "System")
        of_others = scores[name][1:]
        found.update({system: result.p_value for (system, _), result in zip(different, of_others, strict=True)})
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
