"""The table of results, as Markdown and CSV, its claims, and two figures: BLEU by source length, and learning curves."""

import csv
import json
import re
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from claims import claim_lines, decide
from recipe import Recipe
from scores import bleu_by_length, paired_bootstrap

COLUMNS = [
    "system",
    "seed",
    "parameters",
    "words_per_second",
    "hours",
    "updates",
    "best_update",
    "half_update",
    "ended",
    "dev_perplexity",
    "dev_bleu",
    "bleu",
    "p",
    "exact",
    "chrf",
    "no_unk_bleu",
    "no_unk_sentences",
    "aer",
    "precision",
    "recall",
    "bleu_signature",
    "chrf_signature",
    "commit",
    "torch",
    "processor",
]


HOW_DECIDED = (
    "The interval is that of resampling seeds and sentences together (2,000 times). A claim *shows* when all of it lies on the "
    "claim's side, *does not show* when all of it lies on the other side; else it is *undecided*, as it is with one seed."
)


def add_significance(recipe: Recipe, results: list[dict[str, Any]], references: dict[str, list[str]]) -> None:
    """Set ``p`` of every result: the paired bootstrap against the row that it is compared with, of the same seed.

    A row is left out where that one was not run, or has other references (another preparation), or if it has its p already.
    """
    groups: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for result in results:
        against = recipe.system(result["system"]).against
        same = references[result["system"]] == references.get(against)
        if result["system"] != against and same and "p" not in result:
            groups.setdefault((against, result["seed"]), {})[result["system"]] = result
    for baseline in results:
        others = groups.get((baseline["system"], baseline["seed"]), {})
        translations = {name: other["hypotheses"] for name, other in others.items()}
        found = paired_bootstrap(baseline["hypotheses"], translations, references[baseline["system"]])
        for name, p in found.items():
            others[name]["p"] = p


def write_report(
    recipe: Recipe,
    results: list[dict[str, Any]],
    sources: dict[str, list[str]],
    references: dict[str, list[str]],
    command: str,
    folder: Path,
) -> Path:
    """Write results.md, results.csv, claims.json, bleu-by-length.svg and learning-curves.svg; returns the table's path."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "results.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(results)
    lengths = lengths_chart(results, sources, references)
    draw(lengths, "length", "bleu", "words of the source (mean of a group)", "BLEU", folder / "bleu-by-length.svg")
    curves = [
        {"system": result["system"], "seed": result["seed"], "x": point["update"], "y": point["bleu"]}
        for result in results
        if recipe.system(result["system"]).model is None  # else the curve of that model
        for point in result["curve"]
    ]
    draw(curves, "x", "y", "updates", "development BLEU, greedy", folder / "learning-curves.svg")

    rows = [table_row(recipe, system.name, results) for system in recipe.systems]
    rows = [row for row in rows if row is not None]
    names = [name for name in rows[0] if any(row[name] for row in rows)]
    lines = [f"# {recipe.title}", "", f"    {command}", ""]
    lines += [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    lines += [f"| {' | '.join(row[name] for name in names)} |" for row in rows]
    claims = decide(recipe, results, references, command)
    (folder / "claims.json").write_text(json.dumps(claims, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    if claims:
        lines += ["", "## Claims", "", *claim_lines(claims), "", HOW_DECIDED, "", "## About the table"]
    lines += [
        "",
        f"BLEU: `{results[0]['bleu_signature']}`; chrF: `{results[0]['chrf_signature']}`. Development BLEU is greedy and "
        f"chooses the checkpoint. Several seeds: mean ± standard deviation. p: paired bootstrap against {recipe.baseline}"
        f"{others_compared(recipe, results)}, seed by seed. words/s: median over training, of target words; other work on "
        "the machine counts in, in hours too.",
        "",
        *how_made(results),
    ]
    kept = sorted({result["no_unk_sentences"] for result in results if "no_unk_sentences" in result})
    if kept:
        lines += [
            "",
            f"No UNK: `<unk>` is forbidden in the output, and only sentences without an unknown word in source and "
            f"reference count ({' or '.join(map(str, kept))} of {len(next(iter(references.values())))}).",
        ]
    lines += grid(results)
    lines += ["", "![BLEU by source length](bleu-by-length.svg)", "", "![learning curves](learning-curves.svg)"]
    path = folder / "results.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def how_made(results: list[dict[str, Any]]) -> list[str]:
    """In words, what the rows were trained with, how their trainings ended, and what each seed reached."""
    lines = []
    for result in results:
        precision = (
            "bfloat16" if "--bf16" in result["flags"] else "float16" if "--fp16" in result["flags"] else "float32"
        )
        line = f"Trained at commit {result['commit']} with PyTorch {result['torch']} in {precision} on {result['processor']}."
        if line not in lines:
            lines.append(line)
    endings = ("plateau", "cut off", "never began")
    ended = {ending: [one for one in results if one["ended"] == ending] for ending in endings}
    if ended["plateau"] or ended["cut off"]:
        lines.append(f"{len(ended['plateau'])} of {len(results)} runs ended at the plateau of development BLEU.")
    if ended["cut off"]:
        names = ", ".join(dict.fromkeys(one["system"] for one in ended["cut off"]))
        lines.append(f"**Cut off while they may still have been learning: {names}.**")
    if ended["never began"]:
        names = ", ".join(f"{one['system']}, seed {one['seed']}" for one in ended["never began"])
        lines.append(f"**Never began to translate: {names}.**")
    of_system: dict[str, list[str]] = {}
    for result in results:
        of_system.setdefault(result["system"], []).append(f"{result['bleu']:.1f}")
    if any(len(scores) > 1 for scores in of_system.values()):
        each = "; ".join(f"{name} {', '.join(scores)}" for name, scores in of_system.items())
        lines += ["", f"Test BLEU of each seed: {each}."]
    return (
        [" ".join(lines)]
        if "" not in lines
        else [" ".join(lines[: lines.index("")]), "", *lines[lines.index("") + 1 :]]
    )


def others_compared(recipe: Recipe, results: list[dict[str, Any]]) -> str:
    """In words, which rows are compared with another than the recipe's baseline."""
    shown = {result["system"] for result in results}
    pairs = [(system.name, system.against) for system in recipe.systems if system.name in shown]
    other = [f"{name} against {against}" for name, against in pairs if against not in (recipe.baseline, name)]
    return f" ({'; '.join(other)})" if other else ""


def table_row(recipe: Recipe, name: str, results: list[dict[str, Any]]) -> dict[str, str] | None:
    of_system = [result for result in results if result["system"] == name]
    if not of_system:
        return None

    def cell(key: str, digits: int = 1) -> str:
        return spread([result[key] for result in of_system if result.get(key) is not None], digits)

    millions = of_system[0]["parameters"]
    return {
        "system": name,
        "seeds": ", ".join(str(result["seed"]) for result in of_system),
        "parameters": "" if millions is None else f"{millions / 1e6:.2f} M",
        "words/s": cell("words_per_second", 0),
        "hours": cell("hours", 2),
        "updates": cell("updates", 0),
        "updates to half": cell("half_update", 0) if "grammar" in recipe.corpus else "",
        "development perplexity": cell("dev_perplexity", 2),
        "development BLEU": cell("dev_bleu"),
        "test BLEU": cell("bleu"),
        "No UNK": cell("no_unk_bleu"),
        "p": ", ".join(f"{result['p']:.3f}" for result in of_system if result.get("p") is not None),
        "exact": cell("exact", 3) if "grammar" in recipe.corpus else "",
        "chrF": cell("chrf"),
        "AER": cell("aer", 3),
    }


def spread(values: list[float], digits: int) -> str:
    if not values:
        return ""
    text = f"{mean(values):.{digits}f}"
    return text if len(values) == 1 else f"{text} ± {stdev(values):.{digits}f}"


def grid(results: list[dict[str, Any]]) -> list[str]:
    """Simon and Schwenk's table of target and source hops, where there are systems named T0S1 and so on."""
    found: dict[tuple[int, int], list[float]] = {}
    for result in results:
        match = re.fullmatch(r"T(\d)S(\d)", result["system"])
        if match is not None:
            found.setdefault((int(match[1]), int(match[2])), []).append(result["bleu"])
    across, down = sorted({s for _, s in found}), sorted({t for t, _ in found})
    if len(found) < 3:
        return []
    lines = ["", "Test BLEU by target hops (down) and source hops (across):", ""]
    lines += [f"| | {' | '.join(f'S{s}' for s in across)} |", "|" + "---|" * (len(across) + 1)]
    for t in down:
        lines.append(f"| T{t} | {' | '.join(spread(found.get((t, s), []), 1) for s in across)} |")
    return lines


def lengths_chart(
    results: list[dict[str, Any]], sources: dict[str, list[str]], references: dict[str, list[str]]
) -> list[dict[str, Any]]:
    """BLEU of every group of source lengths, the mean over the seeds."""
    points: dict[tuple[str, float], list[float]] = {}
    for result in results:
        name = result["system"]
        for group in bleu_by_length(result["hypotheses"], references[name], sources[name]):
            points.setdefault((name, round(group["mean"], 2)), []).append(group["bleu"])
    return [{"system": name, "length": at, "bleu": mean(scores)} for (name, at), scores in points.items()]


def draw(points: list[dict[str, Any]], x: str, y: str, x_title: str, y_title: str, path: Path) -> None:
    """Lines, one per system, or one per system and seed."""
    import altair as alt

    from fairseq_attn_zoo.inspect.plot import save_chart

    order = list(dict.fromkeys(point["system"] for point in points))
    chart = (
        alt.Chart(alt.Data(values=points))
        .mark_line(point=len(order) < 6)
        .encode(
            x=alt.X(f"{x}:Q", title=x_title, scale=alt.Scale(zero=False)),
            y=alt.Y(f"{y}:Q", title=y_title),
            color=alt.Color("system:N", sort=order, title=None, legend=alt.Legend(labelLimit=0)),
            strokeDash=alt.StrokeDash("system:N", sort=order, legend=None),
            detail="seed:N",
        )
        .properties(width=480, height=300, background="white")
    )
    save_chart(chart, path)
