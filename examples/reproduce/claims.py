"""Is a claim seen? The difference of two systems' mean BLEU, with an interval from resampling seeds and sentences together."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy
from recipe import Claim, Recipe
from steps import StepFailed

RESAMPLES = 2000
BEGIN, END = "<!-- claims: begin -->", "<!-- claims: end -->"


def difference(
    better: list[list[str]], worse: list[list[str]], references: list[str], resamples: int = RESAMPLES, seed: int = 1
) -> tuple[float, float, float]:
    """The difference of mean BLEU and its 95 % interval.

    Each resample draws sentences, the same ones for all, and of each system as many seeds as it has, both with
    replacement; BLEU is then the mean over the seeds drawn. (Koehn 2004 draws the sentences only.)

    Args:
        better, worse: the translations of a system, one list per seed
        references: the references, one per sentence

    Returns:
        the difference (positive: ``better`` is better), and the 2.5th and 97.5th percentile of the resampled ones
    """
    generator = numpy.random.default_rng(seed)
    sentences = len(references)
    drawn = generator.multinomial(
        sentences, numpy.full(sentences, 1 / sentences), size=resamples
    )  # resamples x sentences
    whole, resampled = [], []
    for translations in (better, worse):
        statistics = [sentence_statistics(of_seed, references) for of_seed in translations]
        whole.append(numpy.mean([bleu(of_seed.sum(axis=0)) for of_seed in statistics]))
        scores = numpy.array([[bleu(row) for row in drawn @ of_seed] for of_seed in statistics])  # seeds x resamples
        seeds = generator.integers(len(translations), size=(len(translations), resamples))
        resampled.append(numpy.take_along_axis(scores, seeds, axis=0).mean(axis=0))
    low, high = numpy.percentile(resampled[0] - resampled[1], [2.5, 97.5])
    return float(whole[0] - whole[1]), float(low), float(high)


def sentence_statistics(translations: list[str], references: list[str]) -> numpy.ndarray:
    """What BLEU adds up over sentences: lengths of both, matches and n-grams of each order; sentences x 10."""
    from sacrebleu.metrics import BLEU

    metric = BLEU(tokenize="none", force=True)
    return numpy.array(metric._extract_corpus_statistics(translations, [references]))


def bleu(statistics: numpy.ndarray) -> float:
    from sacrebleu.metrics import BLEU

    system, reference, *counts = (int(value) for value in statistics)
    return BLEU.compute_bleu(counts[:4], counts[4:], system, reference, smooth_method="exp").score


def verdict(claim: Claim, interval: tuple[float, float], seeds: int) -> str:
    """``shows``, ``does not show`` or ``undecided``; one seed decides nothing."""
    low, high = interval
    if seeds < 2:
        return "undecided"
    if claim.within is not None:
        if -claim.within <= low and high <= claim.within:
            return "shows"
        return "does not show" if low > claim.within or high < -claim.within else "undecided"
    if low > 0:
        return "shows"
    return "does not show" if high < 0 else "undecided"


def decide(
    recipe: Recipe, results: list[dict[str, Any]], references: dict[str, list[str]], command: str
) -> list[dict[str, Any]]:
    """Every claim of the recipe both of whose rows are there."""
    found = []
    for claim in recipe.claims:
        sides = [[one for one in results if one["system"] == name] for name in (claim.better, claim.worse)]
        if not all(sides) or references[claim.better] != references[claim.worse]:
            continue
        translations = [[one["hypotheses"] for one in side] for side in sides]
        gain, low, high = difference(*translations, references[claim.better])
        means = [sum(one["bleu"] for one in side) / len(side) for side in sides]
        seeds = min(map(len, sides))
        found.append(
            {
                **claim._asdict(),
                "bleu": means,
                "difference": gain,
                "interval": [low, high],
                "seeds": seeds,
                "cut_off": any(one["ended"] == "cut off" for side in sides for one in side),
                "verdict": verdict(claim, (low, high), seeds),
                "title": recipe.title,
                "command": command,
            }
        )
    return found


def claim_lines(claims: Iterable[dict[str, Any]]) -> list[str]:
    lines = [
        "| claim | the paper's numbers | here | difference, 95 % interval | seeds | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for claim in claims:
        low, high = claim["interval"]
        here = f"{claim['better']} {claim['bleu'][0]:.1f}, {claim['worse']} {claim['bleu'][1]:.1f}"
        told = claim["verdict"] + (" (runs were cut off)" if claim["cut_off"] else "")
        lines.append(
            f"| {claim['says']} | {claim['paper']} | {here} | {claim['difference']:+.1f} ({low:+.1f} to {high:+.1f}) "
            f"| {claim['seeds']} | **{told}** |"
        )
    return lines


def write_page(folder: Path) -> Path:
    """Put the claims of all tables below ``folder`` into its README.md, between the two marks.

    Raises:
        StepFailed: the page is not there, or has no marks
    """
    page = folder / "README.md"
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise StepFailed(f"{page} has no lines {BEGIN} and {END}, between which the claims go")
    lines = []
    for path in sorted(folder.glob("*/claims.json")):
        claims = json.loads(path.read_text(encoding="utf-8"))
        if claims:
            lines += ["", f"**[{claims[0]['title']}]({path.parent.name}/results.md)**", "", *claim_lines(claims)]
    page.write_text("\n".join([f"{before}{BEGIN}", *lines, "", f"{END}{after}"]), encoding="utf-8")
    return page
