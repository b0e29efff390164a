"""The synthetic corpus: one translation per sentence, agreement over distance, gold links that an aligner can reach."""

import doctest
import importlib.util
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_attn_zoo import grammar
from fairseq_attn_zoo.grammar import LengthTable, generate, parses, source_grammar, translate, write_corpus

FILES = {f"{split}.{suffix}" for split in ("train", "valid", "test") for suffix in ("en", "ja", "align")}
FINAL_AUXILIARIES = {noun_class.auxiliary for noun_class in grammar.NOUN_CLASSES.values()}
SMALL = ["--train", "60", "--valid", "20", "--test", "20"]
# `python -m fairseq_attn_zoo.grammar` without what the package imports before: fairseq takes seconds.
WITHOUT_FAIRSEQ = (
    "import runpy, sys, types; package = sys.modules['fairseq_attn_zoo'] = types.ModuleType('fairseq_attn_zoo'); "
    f"package.__path__ = [{str(Path(grammar.__file__).parents[1])!r}]; "
    "runpy.run_module('fairseq_attn_zoo.grammar', run_name='__main__', alter_sys=True)"
)


@pytest.fixture(scope="module")
def pairs():
    """Sentences of every length that the parser reads in a moment."""
    return generate(120, seed=5) + generate(15, min_length=25, max_length=40, seed=6)


@pytest.fixture(scope="module")
def corpus():
    """Enough sentences for frequencies to show."""
    return generate(3000, seed=7)


def read(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def alignment_error_rate(links, pair):
    """1 - (|A & S| + |A & P|) / (|A| + |S|), where the sure links S are possible links P too (Och and Ney, 2003)."""
    sure = set(pair.sure)
    possible = sure | set(pair.possible)
    return 1 - (len(links & sure) + len(links & possible)) / (len(links) + len(sure))


# --- The translation. ---


@pytest.mark.parametrize(
    ("english", "japanese"),
    [
        ("a dog fell", "inu wa ochi ta iru"),
        ("the stones do not slowly fall", "ishi wa yukkuri ochi nai ru aru"),
        ("three dogs saw the teacher", "inu san hiki wa sensei wo mi ta iru"),
        ("these big red cars will not stop", "kono ookii akai kuruma wa tomari nai darou aru"),
        ("the queen of the dogs gave two letters to her doctor under a tree",
         "inu tachi no joou wa ki no shita de kanojo no isha ni tegami futa mai wo age ta irassharu"),
        ("the dog that saw the quiet cat sees the stone with his horse",
         "shizuka na neko wo mi ta inu wa kare no uma to ishi wo mi ru iru"),
        ("the stone that the kings that the dog saw lifted fell",
         "inu ga mi ta ou gata ga mochiage ta ishi wa ochi ta aru"),
        ("the letter that the man gave to the doctor that fell disappeared",
         "otoko ga ochi ta isha ni age ta tegami wa kie ta aru"),
    ],
)  # fmt: skip
def test_translations_worked_out_by_hand(english, japanese):
    assert translate(english).japanese == japanese


def test_the_example_of_the_documentation_is_what_one_gets():
    assert doctest.testmod(grammar) == (0, 2)


def test_links_worked_out_by_hand():
    # 0 the  1 man  2 did  3 not  4 give  5 two  6 letters  7 to  8 the  9 king
    # 0 otoko  1 wa  2 ou  3 ni  4 tegami  5 futa  6 mai  7 wo  8 age  9 nai  10 ta  11 iru
    pair = translate("the man did not give two letters to the king")
    assert pair.sure == ((1, 0), (2, 10), (3, 9), (4, 8), (5, 5), (6, 4), (7, 3), (9, 2))
    assert set(pair.possible) == {
        *((0, 1), (1, 1), (4, 1)),  # wa: its noun phrase and the verb
        *((5, 6), (6, 6)),  # mai: the numeral and the noun
        *((6, 7), (4, 7)),  # wo
        *((8, 3), (9, 3), (4, 3)),  # ni: its noun phrase and the verb besides the preposition
        *((4, 9), (4, 10)),  # nai, ta: the verb besides what expresses them
        *((1, 11), (4, 11)),  # iru: the subject and the verb
    }


def test_joining_particles_may_link_to_both_sides():
    # 0 his  1 quiet  2 dog  3 fell  4 near  5 the  6 stone  7 of  8 a  9 man
    pair = translate("his quiet dog fell near the stone of a man")
    assert pair.japanese == "kare no shizuka na inu wa otoko no ishi no soba de ochi ta iru"
    links = {j: {i for i, target in pair.possible if target == j} for j in range(len(pair.target))}
    assert links[1] == {2}  # no of kare no: the dog
    assert links[3] == {2}  # na: the dog
    assert links[7] == {8, 9, 6}  # no: a man, and the stone
    assert links[9] == links[11] == {5, 6, 3}  # no soba de: the stone, and the verb
    assert links[10] == set()  # soba is no particle


def test_pharaoh_lines_are_sorted_and_name_each_link_once(pairs):
    for pair in pairs:
        links = [tuple(map(int, link.replace("?", "-").split("-"))) for link in pair.pharaoh.split()]
        assert links == sorted(set(links))
        assert set(links) == {*pair.sure, *pair.possible}
        assert {link for link in pair.pharaoh.split() if "-" in link} == {f"{i}-{j}" for i, j in pair.sure}


@pytest.mark.parametrize(
    "sentence", ["", "dog", "the dog saw", "the dog fell the cat", "the unicorn fell", "a dogs fell"]
)
def test_what_is_no_sentence_is_refused(sentence):
    assert parses(sentence) == []
    with pytest.raises(ValueError, match="not a sentence"):
        translate(sentence)


def test_every_sentence_has_one_tree_and_that_tree_gives_its_translation(pairs):
    for pair in pairs:
        assert len(parses(pair.english)) == 1
        assert translate(pair.english) == pair


def test_clauses_are_verb_final_and_relative_clauses_precede_their_noun(pairs):
    tenses = set(grammar.TENSES.values())
    for pair in pairs:
        clauses = 1 + pair.source.count("that")
        *clause_ends, last = [j for j, token in enumerate(pair.target) if token in tenses]
        assert len(clause_ends) + 1 == clauses
        # The main clause ends the sentence; a noun phrase, never a particle, follows each relative clause.
        assert last == len(pair.target) - 2
        assert pair.target.count("wa") == 1
        assert not {pair.target[j + 1] for j in clause_ends} & {"wa", "ga", "wo", "ni", "no", "de"}

        nouns = {i: j for i, j in reversed(pair.sure) if pair.source[i] in grammar.NOUN_FORMS}
        verbs = {i: j for i, j in reversed(pair.sure) if pair.source[i] in grammar.VERB_FORMS}
        for that in (i for i, word in enumerate(pair.source) if word == "that"):
            assert nouns[that - 1] > verbs[min(i for i in verbs if i > that)]


# --- Agreement. ---


def test_the_last_token_agrees_with_the_head_of_the_subject_and_with_no_other_noun(pairs):
    """In English the head of the subject is the first noun of the sentence: change the class of one noun at a time."""
    substitutes = {
        "singular": {"irassharu": "king", "iru": "cat", "aru": "stone"},
        "plural": {"irassharu": "kings", "iru": "cats", "aru": "stones"},
    }
    for pair in pairs[::5]:
        noun_positions = [i for i, word in enumerate(pair.source) if word in grammar.NOUN_FORMS]
        for i in noun_positions:
            number = grammar.NOUN_FORMS[pair.source[i]].number
            for auxiliary, substitute in substitutes[number].items():
                changed = translate(" ".join([*pair.source[:i], substitute, *pair.source[i + 1 :]]))
                assert changed.target[-1] == (auxiliary if i == noun_positions[0] else pair.target[-1])


def test_the_auxiliary_stands_once_and_last_and_far_from_the_subject(pairs):
    distances = []
    for pair in pairs:
        assert [j for j, token in enumerate(pair.target) if token in FINAL_AUXILIARIES] == [len(pair.target) - 1]
        distances.append(len(pair.target) - 1 - pair.target.index("wa"))
    assert max(distances) > 20


def test_classifiers_follow_the_class_of_the_noun():
    classifiers = {
        noun: translate(f"two {noun} fell").target[2]
        for noun, form in grammar.NOUN_FORMS.items()
        if form.number == "plural"
    }
    assert classifiers["teachers"] == "mei" and classifiers["children"] == "nin" and classifiers["wolves"] == "hiki"
    assert set(classifiers.values()) == {noun_class.classifier for noun_class in grammar.NOUN_CLASSES.values()}


# --- The gold links. ---


def test_links_are_in_range_and_every_target_token_has_one(pairs):
    for pair in pairs:
        links = {*pair.sure, *pair.possible}
        assert {j for _, j in links} == set(range(len(pair.target)))
        assert {i for i, _ in links} <= set(range(len(pair.source)))
        assert not set(pair.sure) & set(pair.possible)


def test_only_articles_and_relative_that_have_no_sure_link(pairs):
    for pair in pairs:
        unlinked = set(range(len(pair.source))) - {i for i, _ in pair.sure}
        assert unlinked == {i for i, word in enumerate(pair.source) if word in {"the", "a", "some", "that"}}


def test_an_aligner_with_one_link_a_target_token_can_be_perfect_and_chance_is_far_away(pairs):
    generator = random.Random(0)
    chance = []
    for pair in pairs:
        oracle = {j: i for i, j in (*pair.possible, *pair.sure)}
        assert alignment_error_rate({(i, j) for j, i in oracle.items()}, pair) == pytest.approx(0)
        guess = {(generator.randrange(len(pair.source)), j) for j in range(len(pair.target))}
        chance.append(alignment_error_rate(guess, pair))
    assert sum(chance) / len(chance) > 0.5


# --- The corpus. ---


def test_every_word_is_frequent_enough_to_be_learnt_and_frequencies_are_skewed(corpus):
    lexicon = {word for expansions in source_grammar().values() for parts in expansions for word in parts}
    lexicon -= set(source_grammar())
    for side, expected in ("source", lexicon), ("target", None):
        counts = Counter(chain.from_iterable(getattr(pair, side) for pair in corpus))
        assert expected is None or set(counts) == expected
        assert 100 <= len(counts) <= 200
        assert min(counts.values()) * 20000 / len(corpus) >= 36
        assert max(counts.values()) > 50 * min(counts.values())


def test_default_lengths_and_classes_are_balanced(corpus):
    lengths = [len(pair.source) for pair in corpus]
    assert (min(lengths), max(lengths)) == (4, 20)
    assert 9 < sum(lengths) / len(lengths) < 11
    auxiliaries = Counter(pair.target[-1] for pair in corpus)
    assert set(auxiliaries) == FINAL_AUXILIARIES
    assert min(auxiliaries.values()) > len(corpus) / 5


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_generation_keeps_its_promises(data):
    min_length = data.draw(st.integers(5, 24), label="min_length")
    max_length = data.draw(st.integers(min_length, 24), label="max_length")
    share = data.draw(st.sampled_from([0.0, 0.2, 0.7, 1.0]), label="relative_clauses")
    options = {"min_length": min_length, "max_length": max_length, "relative_clauses": share}
    options["seed"] = data.draw(st.integers(0, 2**40), label="seed")
    pairs = generate(12, **options)
    assert generate(5, **options) == pairs[:5]
    assert len({pair.source for pair in pairs}) == 12
    assert all(min_length <= len(pair.source) <= max_length for pair in pairs)
    assert all("that" in pair.source for pair in pairs) or share < 1
    assert not any("that" in pair.source for pair in pairs) or share > 0


def test_seeds_differ():
    assert not {pair.source for pair in generate(30, seed=1)} & {pair.source for pair in generate(30, seed=2)}


def test_probabilities_of_every_symbol_sum_to_one():
    for share in 0.0, 0.2, 1.0:
        for symbol, expansions in source_grammar(share).items():
            assert sum(expansions.values()) == pytest.approx(1), symbol


def test_weights_by_length_and_draws_agree_with_a_list_of_all_sentences():
    """A grammar small enough to write every sentence down."""
    rules = {"sentence": {("dog", "tail"): 0.5, ("tail", "tail"): 0.5}, "tail": {("ran",): 0.75, ("not", "tail"): 0.25}}
    table = LengthTable(rules, 4)
    assert table.sentences == pytest.approx(
        {
            1: 0,
            2: 0.5 * 0.75 + 0.5 * 0.75**2,
            3: 0.5 * 0.25 * 0.75 + 0.5 * 2 * 0.25 * 0.75**2,
            4: 0.5 * 0.25**2 * 0.75 + 0.5 * 3 * 0.25**2 * 0.75**2,
        }
    )
    generator = random.Random(3)
    drawn = Counter(" ".join(word.symbol for word in table.draw(generator, 3).words()) for _ in range(4000))
    assert set(drawn) == {"dog not ran", "ran not ran", "not ran ran"}
    assert drawn["dog not ran"] / 4000 == pytest.approx(0.5 * 0.25 * 0.75 / table.sentences[3], abs=0.04)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_no_length_is_missing_between_the_shortest_and_the_longest(share):
    lengths = [length for length, weight in LengthTable(source_grammar(share), 40).sentences.items() if weight]
    assert lengths == list(range(lengths[0], 41))


def test_no_source_sentence_is_in_two_splits_and_the_test_set_outlives_a_change_of_the_training_set(tmp_path):
    splits = write_corpus(tmp_path, train=300, valid=40, test=30, min_length=3, max_length=6)
    sources = [pair.source for pairs in splits.values() for pair in pairs]
    assert len(sources) == len(set(sources)) == 370
    before = read(tmp_path)
    write_corpus(tmp_path, train=100, valid=40, test=30, min_length=3, max_length=6)
    after = read(tmp_path)
    for name, content in before.items():
        assert after[name] == (b"".join(content.splitlines(True)[:100]) if name.startswith("train") else content)


# --- The command line. ---


def test_command_line_writes_what_python_returns(tmp_path, capsys):
    assert grammar.main([str(tmp_path / "new" / "cli"), *SMALL, "--max-length", "12", "--seed", "9"]) == 0
    assert "train: 60 sentences" in capsys.readouterr().out
    splits = write_corpus(tmp_path / "python", train=60, valid=20, test=20, max_length=12, seed=9)
    files = read(tmp_path / "new" / "cli")
    assert set(files) == FILES and files == read(tmp_path / "python")
    for split, pairs in splits.items():
        for suffix, attribute in ("en", "english"), ("ja", "japanese"), ("align", "pharaoh"):
            assert files[f"{split}.{suffix}"].decode("ascii").splitlines() == [
                getattr(pair, attribute) for pair in pairs
            ]


def test_defaults_of_the_command_line_are_those_of_python(tmp_path, monkeypatch):
    seen = {}
    monkeypatch.setattr(grammar.cli, "write_corpus", lambda **options: seen.update(options) or {})
    assert grammar.main([str(tmp_path)]) == 0
    defaults = {**write_corpus.__kwdefaults__, **generate.__kwdefaults__, "folder": str(tmp_path)}
    assert seen == defaults


def test_a_process_of_its_own_writes_the_same_whatever_the_hash_seed(tmp_path):
    for hash_seed in "1", "2":
        subprocess.run(
            [sys.executable, "-c", WITHOUT_FAIRSEQ, tmp_path / hash_seed, *SMALL],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
        )
    assert grammar.main([str(tmp_path / "here"), *SMALL]) == 0
    assert read(tmp_path / "1") == read(tmp_path / "2") == read(tmp_path / "here")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--min-length", "1", "--max-length", "2"], "no sentence has 1 to 2 words.*the shortest has 3"),
        (
            ["--min-length", "65", "--max-length", "66", "--relative-clauses", "0"],
            "no sentence has 65 to 66 words.*the longest has",
        ),
        (["--min-length", "3", "--max-length", "3"], "only [0-9]+ have 3 to 3 words"),
        (["--min-length", "66", "--max-length", "67", "--relative-clauses", "1e-320"], "too rare"),
        (["--min-length", "0"], "at least 1 word: 0"),
        (["--min-length", "25"], "must not exceed the maximum length: 25 > 20"),
        (["--max-length", "101"], "must not exceed 100"),
        (["--relative-clauses", "1.5"], "between 0 and 1"),
        (["--relative-clauses", "nan"], "between 0 and 1"),
        (["--seed", "-1"], "seed must not be negative"),
        (["--test", "-1"], "number of test sentences"),
    ],
)
def test_impossible_arguments_get_one_clear_line(arguments, reason, tmp_path, capsys):
    folder = tmp_path / "corpus"
    assert grammar.main([str(folder), *arguments]) != 0
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert re.search(reason, line)
    assert not folder.exists()


def test_a_search_for_more_sentences_than_it_can_find_ends(monkeypatch):
    monkeypatch.setattr(grammar.corpus, "PATIENCE", 3)
    with pytest.raises(ValueError, match="found only [0-9]+ of 8000 different sentences of 3 to 3 words"):
        generate(8000, min_length=3, max_length=3)


def test_a_folder_that_cannot_be_made_gets_one_clear_line_from_the_process(tmp_path):
    (tmp_path / "taken").write_text("a file")
    command = [sys.executable, "-m", grammar.__name__, tmp_path / "taken", *SMALL]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 2
    (line,) = process.stderr.splitlines()
    assert "taken" in line


def test_a_change_in_any_file_of_the_grammar_is_another_version(tmp_path, monkeypatch):
    """By its version the examples know whether a corpus that they wrote before is still what the grammar writes."""
    files = sorted(Path(grammar.__file__).parent.glob("*.py"))
    versions = {grammar.version()}
    for path in files:
        copy = shutil.copytree(path.parent, tmp_path / path.stem, ignore=shutil.ignore_patterns("__pycache__"))
        name = f"{grammar.__name__}_{path.stem}"
        spec = importlib.util.spec_from_file_location(
            name, copy / "__init__.py", submodule_search_locations=[str(copy)]
        )
        changed = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, changed)
        spec.loader.exec_module(changed)
        assert changed.version() == grammar.version()
        (copy / path.name).write_text(path.read_text(encoding="utf-8") + "# changed", encoding="utf-8")
        versions.add(changed.version())
    assert len(versions) == 1 + len(files) > 2
