"""Reproduce a paper's table: train every system with every seed, decode, score, compare, draw.

    python examples/reproduce mino2017 --data FOLDER --seeds 1 2 3
    python examples/reproduce mino2017 --data FOLDER --small
    python examples/reproduce grammar --seeds 1 2 3 4 5 --report docs/results
    python examples/reproduce --page docs/results

The recipe is ``examples/NAME/recipe.yaml``, or a file of your own. FOLDER holds a tokenised parallel corpus (train, dev and
test with the languages as endings; also the names of Multi30k and KFTT). A run that was stopped goes on when it is started
again, finished steps are not repeated, and when a system fails the others go on. Results are written after every model.
"""

import argparse
import os
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parent, HERE.parents[1]):  # this recipe's modules, what recipes share, the package
    sys.path.insert(0, str(folder))

from corpora import Corpus, find_corpus, get_corpus, prepare  # noqa: E402
from gold import Gold, read_gold  # noqa: E402
from recipe import Recipe, System, conditions_of, read_recipe, recipe_names  # noqa: E402
from runs import Run, finish, plan, recorded, train  # noqa: E402
from steps import StepFailed, stop_all  # noqa: E402


def main() -> int:
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("reproduce: terminated; the same command goes on from here"))
    try:
        if arguments.page:
            from claims import write_page

            print(write_page(arguments.page))
            return 0
        return reproduce(arguments)
    except StepFailed as failure:
        print(f"reproduce: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nreproduce: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    finally:
        stop_all()


def parse_arguments() -> argparse.Namespace:
    lines = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(prog="python examples/reproduce", description=lines[0])
    parser.add_argument("recipe", nargs="?", help=f"{', '.join(recipe_names())}, or a .yaml file of your own")
    parser.add_argument(
        "--data", type=Path, help="folder of a tokenised parallel corpus (default: what the recipe downloads or makes)"
    )
    parser.add_argument("--conditions", nargs="+", metavar="NAME", help="of a recipe that has some (default: all)")
    parser.add_argument("--languages", metavar="SOURCE-TARGET", help="direction (default: the recipe's)")
    parser.add_argument("--small", action="store_true", help="the recipe's budget for a small corpus and two cores")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], metavar="N", help="(default: 1)")
    parser.add_argument("--systems", nargs="+", metavar="NAME", help="rows of the table (default: all)")
    parser.add_argument(
        "--prepare", action="append", default=[], metavar="KEY=VALUE", help="e.g. bpe=8000, lowercase=true"
    )
    parser.add_argument("--flags", default="", help="further flags of fairseq-train for all systems, in one string")
    parser.add_argument("--gold-text", type=Path, metavar="FILE", help="hand-aligned pairs, 'source ||| target' a line")
    parser.add_argument("--gold", type=Path, metavar="FILE", help="their links, 'i-j' sure and 'i?j' possible")
    parser.add_argument("--gold-from-1", action="store_true", help="the links count words from 1")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="trainings at once (default: 1)")
    parser.add_argument("--folder", type=Path, default=Path("build/reproduce"), help="where everything is written")
    parser.add_argument(
        "--report", type=Path, metavar="FOLDER", help="where the table and the figures go (default: there)"
    )
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU even where there is one")
    parser.add_argument(
        "--page", type=Path, metavar="FOLDER", help="only write the claims of all tables in FOLDER into its README.md"
    )
    arguments = parser.parse_args()
    if (arguments.recipe is None) == (arguments.page is None):
        parser.error("name a recipe, or --page FOLDER")
    if arguments.jobs < 1:
        parser.error(f"--jobs is {arguments.jobs}; at least one training must run")
    if (arguments.gold is None) != (arguments.gold_text is None):
        parser.error("--gold and --gold-text belong together")
    return arguments


class Table(NamedTuple):
    """A recipe under one condition, its runs, and where its results go."""

    recipe: Recipe
    runs: list[Run]
    report: Path


def reproduce(arguments: argparse.Namespace) -> int:
    known = conditions_of(arguments.recipe)
    missing = [name for name in arguments.conditions or () if name not in known]
    if missing:
        raise StepFailed(
            f"{arguments.recipe} has no condition {', '.join(missing)}; it has {', '.join(known) or 'none'}"
        )
    gold = Gold(arguments.gold_text, arguments.gold, arguments.gold_from_1) if arguments.gold else None
    if gold is not None:
        read_gold(gold)
    recipes = [
        read_recipe(arguments.recipe, arguments.small, changes(arguments), condition)
        for condition in arguments.conditions or known or [None]
    ]
    chosen = [choose(recipe, arguments.systems) for recipe in recipes]
    # PyTorch and fairseq take seconds to import; what is wrong with the arguments has been said by now.
    import torch

    from fairseq_attn_zoo.machine import busy_warning, threads

    if arguments.jobs > 1:
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // arguments.jobs)))
    device = ["--cpu"] if arguments.cpu or not torch.cuda.is_available() else []
    tables = [
        make_table(recipe, systems, gold, arguments, bool(known))
        for recipe, systems in zip(recipes, chosen, strict=True)
    ]
    busy = busy_warning(threads(), arguments.jobs)
    if busy is not None:
        print(f"reproduce: {busy}", file=sys.stderr, flush=True)
    failures: list[str] = []
    for table in tables:
        results: list[dict[str, Any]] = []
        path = None
        for found in execute(table, device, arguments.jobs, failures):
            results += found
            if results:
                path = write_results(table, results, arguments)
        if path is not None:
            print(f"\n{path.read_text(encoding='utf-8')}\n{path}")
    for failure in failures:
        print(f"reproduce: {failure}", file=sys.stderr)
    if failures:
        print(f"reproduce: {len(failures)} failed; the same command tries them again", file=sys.stderr)
    return int(bool(failures))


def make_table(
    recipe: Recipe, systems: list[System], gold: Gold | None, arguments: argparse.Namespace, conditional: bool
) -> Table:
    flags = shlex.split(arguments.flags)
    if flags:
        recipe = recipe._replace(systems=[system._replace(flags=system.flags + flags) for system in recipe.systems])
        systems = choose(recipe, [system.name for system in systems])
    if arguments.data is not None:
        corpus, name = find_corpus(arguments.data, recipe.languages), arguments.data.resolve().name
        parent = arguments.folder / f"{recipe.name}-{name}-{'-'.join(recipe.languages)}"
    else:
        parent = arguments.folder / f"{recipe.name}-{'-'.join(recipe.languages)}"
        corpus = get_corpus(recipe.corpus, recipe.languages, parent)
    report = arguments.report or parent
    if arguments.report and conditional:  # one table for each condition
        report = report / recipe.name
    gold = gold or gold_of_grammar(corpus)
    trained = [recipe.system(system.model or system.name) for system in systems]
    prepared = {
        settings: prepare(corpus, settings, parent) for settings in dict.fromkeys(one.prepare for one in trained)
    }
    runs = [
        plan(system, model, seed, prepared[model.prepare], gold, parent, report)
        for seed in arguments.seeds  # all systems with the first seed first
        for system, model in zip(systems, trained, strict=True)
    ]
    return Table(recipe, runs, report)


def gold_of_grammar(corpus: Corpus) -> Gold | None:
    """The links of a test set that comes from the grammar."""
    gold = Gold(corpus.test.with_name("test.pairs"), corpus.test.with_name("test.align"))
    return gold if gold.text.exists() and gold.links.exists() else None


def changes(arguments: argparse.Namespace) -> dict[str, Any]:
    import yaml

    found: dict[str, Any] = {}
    if arguments.languages:
        found["languages"] = arguments.languages
    for setting in arguments.prepare:
        key, equals, value = setting.partition("=")
        if not equals:
            raise StepFailed(f"--prepare {setting} is not KEY=VALUE")
        found.setdefault("prepare", {})[key] = yaml.safe_load(value)
    return found


def choose(recipe: Recipe, names: list[str] | None) -> list[System]:
    """The rows that are wanted, in the recipe's order."""
    known = [system.name for system in recipe.systems]
    missing = [name for name in names or () if name not in known]
    if missing:
        raise StepFailed(f"{recipe.name} has no system {', '.join(missing)}; it has {', '.join(known)}")
    return [system for system in recipe.systems if names is None or system.name in names]


def execute(table: Table, device: list[str], jobs: int, failures: list[str]) -> Iterator[list[dict[str, Any]]]:
    """Train each model once, decode and score each row of it; yields a model's rows. What fails is put into ``failures``."""
    runs = table.runs
    lock = threading.Lock()
    done = 0

    def report(line: str) -> None:
        with lock:
            print(f"[{done}/{len(runs)}] {line}", flush=True)

    models: dict[Path, list[Run]] = {}  # by folder
    for run in runs:
        models.setdefault(run.folder, []).append(run)

    def work(rows: list[Run]) -> list[dict[str, Any]]:
        nonlocal done
        before = [recorded(run) for run in rows]
        if not all(before):
            train(rows[0], device, report)
        found = []
        for run, result in zip(rows, before, strict=True):
            try:
                found.append(result or finish(run, table.recipe.no_unk, device, report))
            except StepFailed as failure:
                fail(str(failure))
            done += 1
        return found

    def fail(message: str) -> None:
        failures.append(message)
        report(message)

    with ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(work, rows): rows for rows in models.values()}
        try:
            for future in as_completed(waiting):
                try:
                    yield future.result()
                except StepFailed as failure:
                    fail(str(failure))
                except Exception as error:  # a defect of ours: the other systems go on all the same
                    traceback.print_exc()
                    fail(f"{waiting[future][0].name}: {type(error).__name__}: {error}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stop_all()
            raise


def write_results(table: Table, results: list[dict[str, Any]], arguments: argparse.Namespace) -> Path:
    from report import add_significance, write_report

    recipe, runs, report = table
    order = {(run.system.name, run.seed): place for place, run in enumerate(runs)}
    results.sort(key=lambda result: order[result["system"], result["seed"]])
    of_system = {run.system.name: run.prepared for run in runs}
    sources = {name: prepared.words("test", 0) for name, prepared in of_system.items()}
    references = {name: prepared.words("test", 1) for name, prepared in of_system.items()}
    add_significance(recipe, results, references)
    command = shlex.join(["python", "examples/reproduce", *public(sys.argv[1:], arguments)])
    return write_report(recipe, results, sources, references, command, report)


def public(words: list[str], arguments: argparse.Namespace) -> list[str]:
    """The command line with the corpus's own name in place of where it lies here, and without what changes no number."""
    shown, skip = [], False
    paths = {str(path): path.name for path in (arguments.data, arguments.gold, arguments.gold_text) if path}
    for word in words:
        if skip or word in ("--folder", "--report", "--jobs"):
            skip = not skip
            continue
        shown.append(f"DATA/{paths[word]}" if word in paths else word)
    return shown


if __name__ == "__main__":
    sys.exit(main())
