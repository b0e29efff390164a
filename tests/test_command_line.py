"""fairseq's commands with the architectures of the package, as a user types them."""

import functools
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from commands import (
    EPOCHS,
    LONGEST,
    PACKAGE,
    USER_DIR,
    Training,
    error_message,
    flag,
    quick_learner,
    read_lines,
    run,
    tiny_model,
    tiny_sizes,
    train,
    translations,
    write_lines,
)
from conftest import SUBSETS

from fairseq_attn_zoo.models import ARCHITECTURES

EVERY = sorted(ARCHITECTURES)
WITH_ATTENTION = [name for name in EVERY if ARCHITECTURES[name].card.has_attention]
WITHOUT_ATTENTION = [name for name in EVERY if name not in WITH_ATTENTION]
SOFT = ("--print-alignment", "soft")
TOLERANCE = 1e-4  # of scores in base 2, printed with four decimals


def parameters(checkpoint):
    return torch.load(checkpoint)["model"]


def mean(values):
    return math.fsum(values) / len(values)


# Training


@pytest.mark.parametrize("architecture", EVERY)
def test_training_lowers_the_loss_on_both_subsets(trained, architecture):
    training = trained(architecture)
    for subset in ("train", "valid"):
        losses = training.statistic(subset, "loss")
        assert len(losses) == EPOCHS
        assert losses[-1] < losses[0] - 0.3


@pytest.mark.parametrize("architecture", EVERY)
def test_the_best_checkpoint_is_one_of_the_best_bleu(trained, architecture):
    training = trained(architecture)
    bleu = training.statistic("valid", "bleu")
    assert torch.load(training.best)["extra_state"]["best"] == max(bleu)
    best = parameters(training.best)
    epochs = [parameters(training.folder / f"checkpoint{epoch}.pt") for epoch in range(1, EPOCHS + 1)]
    same = [all(torch.equal(best[name], value) for name, value in epoch.items()) for epoch in epochs]
    assert same.count(True) == 1
    assert bleu[same.index(True)] == max(bleu)


def test_tensorboard_has_the_losses_of_training_and_validation(trained):
    folder = trained("gru_rnnsearch").folder / "tensorboard"
    for subset in ("train", "valid"):
        (events,) = (folder / subset).glob("events.out.tfevents.*")
        assert events.read_bytes().count(b"loss") >= EPOCHS


def test_resumed_training_equals_uninterrupted_training(corpus, trained, tmp_path):
    whole = trained("gru_rnnsearch")
    shutil.copy(whole.folder / "checkpoint1.pt", tmp_path / "checkpoint_last.pt")
    resumed = train(tmp_path, corpus.data, *tiny_model("gru_rnnsearch"), "--dropout", "0.1", "--max-epoch", 2)
    assert resumed.statistic("train", "loss") == whole.statistic("train", "loss")[1:2]
    expected, found = (torch.load(folder / "checkpoint2.pt") for folder in (whole.folder, tmp_path))
    for name, value in expected["model"].items():
        assert torch.equal(found["model"][name], value), name
    moments = expected["last_optimizer_state"]["state"]
    assert moments
    for number, moment in moments.items():
        for name in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(found["last_optimizer_state"]["state"][number][name], moment[name])


def test_validation_finds_the_loss_that_training_found(corpus, trained):
    training = trained("gru_rnnsearch")
    last = training.folder / "checkpoint_last.pt"
    flags = ("--task", "translation", "--path", last, "--max-tokens", 500, "--log-format", "json")
    output = run("validate", corpus.data, *USER_DIR, *flags, cwd=training.folder)
    (found,) = training._replace(output=output).statistic("valid", "loss")
    assert found == pytest.approx(training.statistic("valid", "loss")[-1], abs=1e-3)


def test_the_chunked_criterion_trains_like_fairseqs(corpus, trained, tmp_path):
    expected = trained("lstm_luong_attention")
    flags = ("--dropout", "0.1", "--criterion", "chunked_cross_entropy", "--chunk-mib", 1, "--max-epoch", 1)
    found = train(tmp_path, corpus.data, *tiny_model("lstm_luong_attention"), *flags)
    for subset in ("train", "valid"):
        assert found.statistic(subset, "loss") == pytest.approx(expected.statistic(subset, "loss")[:1], abs=2e-3)


def test_frozen_pretrained_embeddings_stay_as_they_are(corpus, tmp_path):
    """Two layers; and --patience, which ends a training that no longer gets better."""
    words = {side: [line.split()[0] for line in read_lines(corpus.data / f"dict.{side}.txt")] for side in ("en", "ja")}
    values = {}
    for side in words:
        words[side] = words[side][:50]
        values[side] = torch.randn(50, 16, generator=torch.Generator().manual_seed(len(values))).round(decimals=3)
        rows = [" ".join([word, *map(str, row.tolist())]) for word, row in zip(words[side], values[side], strict=True)]
        write_lines(tmp_path / f"vectors.{side}", ["50 16", *rows])
    frozen = ("--encoder-embed-path", tmp_path / "vectors.en", "--encoder-freeze-embed")
    frozen += ("--decoder-embed-path", tmp_path / "vectors.ja", "--decoder-freeze-embed")
    # Translations of one word have no two words in a row: their BLEU is 0, and never gets better.
    stopping = ("--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 1}', "--patience", 2)
    stopping += ("--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric")
    model = tiny_model("gru_rnnsearch", encoder_layers=2, decoder_layers=2)
    training = train(tmp_path, corpus.data, *model, *frozen, *stopping, "--lr", 1e-5)

    losses, bleu = (training.statistic("valid", name) for name in ("loss", "bleu"))
    assert losses == sorted(losses, reverse=True)
    assert len(bleu) == bleu.index(max(bleu)) + 3 < EPOCHS
    first, last = (parameters(tmp_path / name) for name in ("checkpoint1.pt", "checkpoint_last.pt"))
    changed = {name for name in first if not torch.equal(first[name], last[name])}
    embeddings = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}
    assert not changed & embeddings
    assert changed > {f"encoder.network.rnn.weight_hh_l{layer}" for layer in range(2)}
    for name, side in (("encoder", "en"), ("decoder", "ja")):
        assert torch.equal(last[f"{name}.embed_tokens.weight"][4:54], values[side])


def test_shared_embeddings_and_supervised_alignments(aligned_data, tmp_path):
    """Two layers, one dictionary, one matrix for three purposes; gold alignments teach the attention."""
    sizes = {"encoder_embed_dim": 32, "decoder_embed_dim": 32, "encoder_layers": 2, "decoder_layers": 2}
    supervision = ("--load-alignments", "--criterion", "label_smoothed_cross_entropy_with_alignment")
    model = (*tiny_model("lstm_luong_attention", **sizes), "--share-all-embeddings")
    training = train(tmp_path, aligned_data, *model, *supervision, "--alignment-lambda", 1)

    losses = training.statistic("train", "alignment_loss")
    assert losses[-1] < 0.8 * losses[0]
    last = parameters(tmp_path / "checkpoint_last.pt")
    names = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight")
    shared = [last[name] for name in names]
    assert len(shared[0]) == 4 + len(read_lines(aligned_data / "dict.en.txt"))
    assert torch.equal(shared[0], shared[1]) and torch.equal(shared[0], shared[2])


BFLOAT16 = ("gru_rnnsearch", "lstm_kv_attention")


@pytest.fixture(scope="module")
def trained_in_bfloat16(corpus, tmp_path_factory) -> Callable[[str], Training]:
    """Name of an architecture -> what ``trained`` has of it, trained with --bf16; no BLEU."""

    @functools.cache
    def get(architecture: str) -> Training:
        flags = (*quick_learner(architecture), "--dropout", "0.1", "--bf16")
        return train(tmp_path_factory.mktemp(architecture), corpus.data, *flags)

    return get


@pytest.mark.parametrize("architecture", BFLOAT16)
def test_training_in_bfloat16_learns_like_float32_and_saves_float32(trained, trained_in_bfloat16, architecture):
    wide, narrow = trained(architecture), trained_in_bfloat16(architecture)
    for subset in ("train", "valid"):
        losses = wide.statistic(subset, "loss"), narrow.statistic(subset, "loss")
        assert losses[0] != losses[1]
        assert losses[1] == pytest.approx(losses[0], rel=0.1)
    saved = torch.load(narrow.folder / "checkpoint_last.pt")
    assert {values.dtype for values in saved["model"].values()} == {torch.float32}
    for name, values in saved["model"].items():
        assert not torch.equal(values, values.bfloat16().float()), name  # nothing was rounded away
    assert saved["optimizer_history"][-1]["optimizer_name"] == "FairseqAdam"


def test_resumed_training_in_bfloat16_equals_uninterrupted_training(corpus, trained_in_bfloat16, tmp_path):
    """Parameters and moments, bit for bit."""
    whole = trained_in_bfloat16("gru_rnnsearch")
    shutil.copy(whole.folder / "checkpoint1.pt", tmp_path / "checkpoint_last.pt")
    flags = (*quick_learner("gru_rnnsearch"), "--dropout", "0.1", "--bf16", "--max-epoch", 2)
    resumed = train(tmp_path, corpus.data, *flags)
    assert resumed.statistic("train", "loss") == whole.statistic("train", "loss")[1:2]
    expected, found = (torch.load(folder / "checkpoint2.pt") for folder in (whole.folder, tmp_path))
    for name, value in expected["model"].items():
        assert torch.equal(found["model"][name], value), name
    for number, moment in expected["last_optimizer_state"]["state"].items():
        for name in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(found["last_optimizer_state"]["state"][number][name], moment[name])


@pytest.mark.parametrize("after", [(), ("--bf16",)], ids=["float32", "bfloat16"])
def test_training_goes_on_in_the_other_precision_with_its_moments(
    corpus, trained, trained_in_bfloat16, tmp_path, after
):
    before, whole = (trained if after else trained_in_bfloat16), (trained_in_bfloat16 if after else trained)
    shutil.copy(before("gru_rnnsearch").folder / "checkpoint2.pt", tmp_path / "checkpoint_last.pt")
    flags = (*quick_learner("gru_rnnsearch"), "--dropout", "0.1", "--max-epoch", 3)
    resumed = train(tmp_path, corpus.data, *flags, *after)
    assert f"Loaded checkpoint {tmp_path / 'checkpoint_last.pt'}" in resumed.output
    expected = whole("gru_rnnsearch").statistic("train", "loss")[2]
    assert resumed.statistic("train", "loss") == pytest.approx([expected], rel=0.1)
    first, found = (torch.load(folder / "checkpoint3.pt") for folder in (before("gru_rnnsearch").folder, tmp_path))
    for number, moment in first["last_optimizer_state"]["state"].items():  # as far on as one that did not change
        assert found["last_optimizer_state"]["state"][number]["step"] == moment["step"]


def test_an_optimizer_of_fp16_is_refused_by_bf16_in_one_line(corpus, trained, tmp_path):
    state = torch.load(trained("gru_rnnsearch").folder / "checkpoint1.pt")
    state["last_optimizer_state"]["loss_scale"] = 128.0
    state["optimizer_history"][-1]["optimizer_name"] = "FP16Optimizer"
    torch.save(state, tmp_path / "checkpoint_last.pt")
    settings = ("--optimizer", "adam", "--max-tokens", 500, "--bf16", "--save-dir", tmp_path, "--max-epoch", 2)
    model = tiny_model("gru_rnnsearch")
    output = run("train", corpus.data, *USER_DIR, *model, *settings, cwd=tmp_path, fails=True)
    assert error_message(output).startswith("ValueError: the checkpoint's optimizer is one of --fp16")
    assert "--reset-optimizer" in error_message(output)
    run("train", corpus.data, *USER_DIR, *model, *settings, "--reset-optimizer", cwd=tmp_path)


def assert_close_translations(narrow: dict, wide: dict) -> None:
    """In bfloat16, close to float32: scores are other ones, but where the words are the same they are near."""
    assert sorted(narrow) == sorted(wide)
    same = [number for number in wide if narrow[number].best.words == wide[number].best.words]
    assert len(same) > len(wide) / 2
    scores = [(narrow[number].best.score, wide[number].best.score) for number in same]
    assert sum(one != other for one, other in scores) > len(same) / 2
    for one, other in scores:
        assert one == pytest.approx(other, abs=0.1)


@pytest.mark.parametrize("architecture", BFLOAT16)
def test_models_of_both_precisions_translate_in_both(corpus, trained, trained_in_bfloat16, architecture, tmp_path):
    for training in (trained(architecture), trained_in_bfloat16(architecture)):
        settings = (corpus.data, *USER_DIR, "--path", training.folder / "checkpoint_last.pt")
        wide, narrow = (translations(run("generate", *settings, *flag, cwd=tmp_path)) for flag in ((), ("--bf16",)))
        assert_close_translations(narrow, wide)
        for sentence in narrow.values():  # sums of words are not rounded to bfloat16
            assert sentence.best.score == pytest.approx(mean(sentence.best.word_scores), abs=TOLERANCE)
        lines = "".join(f"{' '.join(wide[number].source)}\n" for number in sorted(wide))
        together = ("--bf16", "--buffer-size", 50, "--batch-size", 50)
        output = run("interactive", *settings, *together, cwd=tmp_path, stdin=lines)
        assert_close_translations(translations(output), wide)


def test_scores_of_references_in_bfloat16_are_close(generated):
    """Of an ensemble, too."""
    for names in ("gru_rnnsearch", "gru_rnnsearch:lstm_luong_attention"):
        wide, narrow = (generated(names, "--score-reference", *flag) for flag in ((), ("--bf16",)))
        assert_close_translations(narrow, wide)


def test_validation_in_bfloat16_finds_nearly_the_loss_of_float32(corpus, trained, tmp_path):
    path = trained("lstm_luong_attention").folder / "checkpoint_last.pt"
    flags = ("--task", "translation", "--path", path, "--max-tokens", 500, "--log-format", "json")
    flags = (
        *flags,
        "--valid-subset",
        "valid,test,train",
    )  # the log has three digits, which may be equal on one of them
    outputs = (run("validate", corpus.data, *USER_DIR, *flags, *flag, cwd=tmp_path) for flag in ((), ("--bf16",)))
    wide, narrow = (
        [Training(tmp_path, output).statistic(subset, "loss") for subset in ("valid", "test", "train")]
        for output in outputs
    )
    assert all(wide) and narrow != wide
    for of_subset, expected in zip(narrow, wide, strict=True):
        assert of_subset == pytest.approx(expected, abs=0.05)


def test_python_loads_models_in_bfloat16_when_asked(corpus, trained_in_bfloat16):
    folder = str(trained_in_bfloat16("gru_rnnsearch").folder)
    for asked, precision in (({}, torch.float32), ({"bf16": True}, torch.bfloat16)):
        model = ARCHITECTURES["gru_rnnsearch"].from_pretrained(folder, "checkpoint_last.pt", str(corpus.data), **asked)
        assert {parameter.dtype for parameter in model.models.parameters()} == {precision}
        assert model.translate(["the dog"])[0]


def test_hydra_trains_from_a_yaml_file_in_bfloat16_and_generate_reads_its_checkpoint(corpus, tmp_path):
    sizes = "".join(f"  {name}: {size}\n" for name, size in tiny_sizes("lstm_luong_attention").items())
    config = f"""\
# @package _global_
common: {{user_dir: {PACKAGE}, log_format: json, seed: 1, bf16: true}}
task: {{_name: translation, data: {corpus.data}, source_lang: en, target_lang: ja}}
criterion: {{_name: cross_entropy}}
optimizer: {{_name: adam}}
lr_scheduler: {{_name: fixed}}
dataset: {{max_tokens: 500}}
optimization: {{max_epoch: 3, lr: [0.01]}}
checkpoint: {{save_dir: {tmp_path / "checkpoints"}}}
model:
  _name: lstm_luong_attention
  attention_score: general
{sizes}"""
    (tmp_path / "tiny.yaml").write_text(config, encoding="utf-8")
    run("hydra_train", "--config-dir", tmp_path, "--config-name", "tiny", cwd=tmp_path)

    checkpoint = tmp_path / "checkpoints" / "checkpoint_best.pt"
    assert torch.load(checkpoint)["cfg"]["common"]["bf16"]
    found = translations(run("generate", corpus.data, *USER_DIR, "--path", checkpoint, cwd=tmp_path))
    assert sorted(found) == list(range(SUBSETS["test"]))


# Translating


@pytest.mark.parametrize("architecture", EVERY)
def test_every_sentence_is_translated_once(generated, architecture):
    found = generated(architecture, *(SOFT if architecture in WITH_ATTENTION else ()))
    assert sorted(found) == list(range(SUBSETS["test"]))
    assert all(len(sentence.hypotheses) == 1 for sentence in found.values())


def test_every_sentence_of_another_number_is_translated_once(generated):
    found = generated("gru_rnnsearch", "--gen-subset", "valid", "--prefix-size", "2")
    assert sorted(found) == list(range(SUBSETS["valid"]))


def test_the_name_of_the_package_is_enough_in_the_repository(corpus, trained, generated):
    """And one sentence is translated as it is among others."""
    flags = ("--user-dir", "fairseq_attn_zoo", "--path", trained("gru_rnnsearch").best, "--gen-subset", "test1")
    found = translations(run("generate", corpus.data, *flags, cwd=Path(__file__).parents[1]))
    assert list(found) == [0]
    assert found[0].best.words == generated("gru_rnnsearch", *SOFT)[0].best.words


@pytest.mark.parametrize("architecture", WITH_ATTENTION)
def test_a_batch_is_translated_and_aligned_like_its_sentences_one_by_one(generated, architecture):
    """Sources of a batch differ in length and are padded on the left."""
    together, alone = generated(architecture, *SOFT), generated(architecture, *SOFT, "--batch-size", "1")
    assert len({len(sentence.source) for sentence in together.values()}) > 3
    assert sorted(together) == sorted(alone)
    for number, sentence in together.items():
        expected = alone[number].best
        assert sentence.best.words == expected.words
        assert sentence.best.score == pytest.approx(expected.score, abs=TOLERANCE)
        weights = torch.tensor(sentence.best.weights())
        torch.testing.assert_close(weights, torch.tensor(expected.weights()), rtol=0, atol=2e-6)


@pytest.mark.parametrize("architecture", WITH_ATTENTION)
def test_soft_alignments_spread_each_word_over_the_source(generated, architecture):
    uniform = 0
    for sentence in generated(architecture, *SOFT).values():
        weights = torch.tensor(sentence.best.weights())
        assert weights.shape == (len(sentence.best.words) + 1, len(sentence.source) + 1)
        torch.testing.assert_close(weights.sum(dim=1), torch.ones(len(weights)), rtol=0, atol=1e-5)
        uniform += torch.allclose(weights, torch.full_like(weights, 1 / weights.size(1)), atol=1e-3)
    assert uniform < SUBSETS["test"] / 10  # else these sentences would say nothing about positions


def test_hard_alignments_link_each_word_to_its_largest_weight(generated):
    hard = generated("lstm_luong_attention", "--print-alignment", "hard", "--nbest", "3")
    for number, sentence in generated("lstm_luong_attention", *SOFT).items():
        links = hard[number].best.links()
        assert hard[number].best.words == sentence.best.words
        assert [target for _, target in links] == list(range(len(sentence.best.words)))
        for (source, _), weights in zip(links, sentence.best.weights()[:-1], strict=True):
            assert 0 <= source < len(sentence.source)
            assert weights[source] >= max(weights[:-1]) - 2e-6  # </s> is never linked


@pytest.mark.parametrize("architecture", WITHOUT_ATTENTION)
def test_alignments_of_an_architecture_without_attention_are_refused(corpus, trained, architecture):
    flags = ("--path", trained(architecture).best, "--print-alignment", "hard")
    output = run("generate", corpus.data, *USER_DIR, *flags, cwd=corpus.data, fails=True)
    assert "attention" in error_message(output) and "--print-alignment" in error_message(output)


def test_nbest_gives_the_best_first(generated):
    found = generated("lstm_luong_attention", "--print-alignment", "hard", "--nbest", "3")
    assert sorted(found) == list(range(SUBSETS["test"]))
    for number, sentence in found.items():
        scores = [hypothesis.score for hypothesis in sentence.hypotheses]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(hypothesis.words) for hypothesis in sentence.hypotheses}) == 3
        assert sentence.best.words == generated("lstm_luong_attention", *SOFT)[number].best.words
        for hypothesis in sentence.hypotheses:
            assert len(hypothesis.word_scores) == len(hypothesis.words) + 1
            assert hypothesis.score == pytest.approx(mean(hypothesis.word_scores), abs=TOLERANCE)


def test_a_wider_beam_finds_better_scores(generated):
    narrow, wide = generated("gru_rnnsearch", "--beam", "1"), generated("gru_rnnsearch", *SOFT)
    assert sorted(narrow) == sorted(wide)
    assert mean([wide[number].best.score for number in wide]) > mean([narrow[number].best.score for number in wide])


def test_a_trained_model_translates_with_another_number_of_hops(generated):
    trained_hops = generated("lstm_memnet_hops", *SOFT)
    for hops in ("{'source_hops': 3}", "{'source_hops': 7, 'target_hops': 0}"):
        found = generated("lstm_memnet_hops", "--model-overrides", hops)
        assert sorted(found) == sorted(trained_hops)
        changed = [number for number in found if found[number].best.score != trained_hops[number].best.score]
        assert len(changed) > SUBSETS["test"] / 2


def test_a_compiled_decoder_translates_like_the_plain_one(corpus, trained, generated):
    plain = generated("gru_rnnsearch", *SOFT)
    flags = ("--path", trained("gru_rnnsearch").best, *SOFT, "--model-overrides", "{'compile_decoder': True}")
    output = run("generate", corpus.data, *USER_DIR, *flags, cwd=corpus.data)
    assert "the decoder is compiled" in output and "--compile-decoder is left out" not in output
    compiled = translations(output)
    assert sorted(compiled) == sorted(plain)
    for number, sentence in compiled.items():
        assert sentence.best.words == plain[number].best.words
        assert sentence.best.score == pytest.approx(plain[number].best.score, abs=TOLERANCE)
        weights = torch.tensor(sentence.best.weights())
        torch.testing.assert_close(weights, torch.tensor(plain[number].best.weights()), rtol=0, atol=2e-6)


def test_fairseqs_own_search_finds_the_same(corpus, trained, generated, monkeypatch):
    """The best hypotheses of all sentences, their scores and their weights."""
    ours = generated("gru_rnnsearch", *SOFT)
    monkeypatch.setenv("FAIRSEQ_ATTN_ZOO_SEARCH", "fairseq")
    flags = ("--path", trained("gru_rnnsearch").best, *SOFT)
    output = run("generate", corpus.data, *USER_DIR, *flags, cwd=corpus.data, fresh=True)
    assert "fairseq's own search is used" in output
    theirs = translations(output)
    assert sorted(theirs) == sorted(ours)
    for number, sentence in theirs.items():
        for found, expected in zip(ours[number].hypotheses, sentence.hypotheses, strict=True):
            assert found.words == expected.words
            assert found.word_scores == pytest.approx(expected.word_scores, abs=TOLERANCE)
            weights = torch.tensor(found.weights())
            torch.testing.assert_close(weights, torch.tensor(expected.weights()), rtol=0, atol=2e-6)


def test_a_number_of_hops_out_of_range_is_refused(corpus, trained):
    flags = ("--path", trained("lstm_memnet_hops").best, "--model-overrides", "{'source_hops': 9}")
    output = run("generate", corpus.data, *USER_DIR, *flags, cwd=corpus.data, fails=True)
    assert error_message(output).endswith("--source-hops is 9; it must be from 1 to 7")


def test_a_prefix_of_the_reference_is_kept(generated):
    for sentence in generated("gru_rnnsearch", "--gen-subset", "valid", "--prefix-size", "2").values():
        assert sentence.best.words[:2] == sentence.reference[:2]


def test_reference_scores_do_not_depend_on_the_batch(generated):
    together, alone = (generated("gru_rnnsearch", "--score-reference", *size) for size in ((), ("--batch-size", "1")))
    assert sorted(together) == sorted(alone) == list(range(SUBSETS["test"]))
    for number, sentence in together.items():
        (hypothesis,) = sentence.hypotheses
        assert hypothesis.words == sentence.reference
        assert hypothesis.score == pytest.approx(alone[number].best.score, abs=TOLERANCE)
        assert hypothesis.word_scores == pytest.approx(alone[number].best.word_scores, abs=2 * TOLERANCE)


def test_an_ensemble_of_two_architectures_averages_their_probabilities(generated):
    """All words at once, and word by word in beam search, where a prefix of any length makes it say the reference."""
    names = ("gru_rnnsearch", "lstm_luong_attention")
    parts = [generated(name, "--score-reference") for name in names]
    at_once = generated(":".join(names), "--score-reference")
    word_by_word = generated(":".join(names), "--prefix-size", str(LONGEST))
    assert sorted(at_once) == sorted(word_by_word) == list(range(SUBSETS["test"]))
    for number, sentence in at_once.items():
        scores = zip(*(part[number].best.word_scores for part in parts), strict=True)
        expected = [math.log2(mean([2**score for score in pair])) for pair in scores]
        assert sentence.best.word_scores == pytest.approx(expected, abs=2 * TOLERANCE)
        forced = word_by_word[number].best
        assert forced.words == sentence.reference
        assert forced.word_scores == pytest.approx(sentence.best.word_scores, abs=2 * TOLERANCE)


def test_an_ensemble_of_a_checkpoint_and_itself_translates_like_it(generated):
    alone, twice = (generated(names, *SOFT) for names in ("gru_rnnsearch", "gru_rnnsearch:gru_rnnsearch"))
    assert sorted(alone) == sorted(twice) == list(range(SUBSETS["test"]))
    for number, sentence in twice.items():
        assert sentence.best.words == alone[number].best.words
        assert sentence.best.score == pytest.approx(alone[number].best.score, abs=TOLERANCE)
        weights = torch.tensor(sentence.best.weights())
        torch.testing.assert_close(weights, torch.tensor(alone[number].best.weights()), rtol=0, atol=2e-6)


def test_interactive_and_python_translate_raw_text_line_by_line(corpus, trained, generated):
    folder = trained("gru_rnnsearch").folder
    known = read_lines(corpus.raw / "test.en")[:5]
    lines = [*known[:2], "", "Señor, the dog's well-known?", *known[2:]]
    text = {"tokenizer": "moses", "source_lang": "en", "target_lang": "ja"}
    text |= {"bpe": "subword_nmt", "bpe_codes": str(corpus.codes)}
    flags = [part for name, value in text.items() for part in (flag(name), value)]
    flags += ["--path", folder / "checkpoint_best.pt", "--buffer-size", 4, "--batch-size", 4]
    output = run(
        "interactive", corpus.data, *USER_DIR, *flags, cwd=folder, stdin="".join(f"{line}\n" for line in lines)
    )
    found = translations(output)

    assert list(found) == list(range(len(lines)))
    together = generated("gru_rnnsearch", *SOFT)
    assert found[2].source == []
    assert "<unk>" in found[3].source
    for number, line in [(0, 0), (1, 1), (4, 2), (5, 3), (6, 4)]:
        assert found[number].source == together[line].source
        assert found[number].best.words == together[line].best.words
        assert "@@" not in found[number].best.detokenized
    model = ARCHITECTURES["gru_rnnsearch"].from_pretrained(str(folder), "checkpoint_best.pt", str(corpus.data), **text)
    assert model.translate(lines, beam=5) == [sentence.best.detokenized for sentence in found.values()]


def test_interactive_reads_any_bytes_and_ends_lines_at_line_feeds_only(corpus, trained, generated, tmp_path):
    """Characters that other programs take for the end of a line or of a file, and bytes that are no UTF-8."""
    words = read_lines(corpus.codes.parent / "pieces" / "test.en")[0]
    spaces = [
        words.replace(" ", space) for space in ("\r", "\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\t ", "\xa0")
    ]
    others = ["", "   ", "\r", "\0", "\u200f\u202e مرحبا", "👩\u200d👧 😀", "\ufffe", "\x1a", "\ufeff"]
    text = b"".join(line.encode() + b"\n" for line in [words, *spaces, *others]) + b"\xff\xc3\n" + words.encode()
    (tmp_path / "text").write_bytes(text)
    flags = ("--path", trained("gru_rnnsearch").best, "--beam", 1, "--input", tmp_path / "text", "--buffer-size", 3)
    found = translations(run("interactive", corpus.data, *USER_DIR, *flags, cwd=tmp_path, fresh=True))
    assert list(found) == list(range(text.count(b"\n") + 1))
    for number in (*range(1, 1 + len(spaces) - 2), len(found) - 1):  # fairseq makes nothing of the last two of these
        assert found[number].best == found[0].best
    for number in range(1 + len(spaces), len(found) - 1):
        assert all(word == "<unk>" for word in found[number].source)


def memory_mib(process: subprocess.Popen) -> float:
    """Resident memory of a running process."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1]) / 1024


def test_interactive_reads_twenty_thousand_lines_in_the_same_memory(corpus, trained, tmp_path):
    count, early = 20_000, 4_000
    known = [line for line in read_lines(corpus.codes.parent / "pieces" / "test.en") if len(line.split()) <= 8]
    lines = [f"{known[number % len(known)]} {'the ' * (number % 7)}".strip() for number in range(count)]
    write_lines(tmp_path / "text", lines)
    settings = ("--path", trained("lstm_luong_attention").best, "--beam", 1, "--max-len-a", 0, "--max-len-b", 3)
    batches = ("--input", tmp_path / "text", "--buffer-size", 400, "--batch-size", 400)
    command = (sys.executable, "-m", "fairseq_cli.interactive", corpus.data, *USER_DIR, *settings, *batches)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    numbers, sizes = [], []
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8", env=environment
    ) as process:
        for line in process.stdout:
            kind, _, text = line.partition("\t")
            if kind.startswith("S-"):
                numbers.append(int(kind[2:]))
                assert text.replace("<unk>", "").split() == [
                    word for word in lines[numbers[-1]].split() if word in text.split()
                ]
                if len(numbers) in (early, count):
                    sizes.append(memory_mib(process))
    assert numbers == list(range(count))
    assert sizes[1] - sizes[0] < 40


def test_python_translates_like_generate(corpus, trained, generated):
    folder = trained("lstm_luong_attention").folder
    model = ARCHITECTURES["lstm_luong_attention"].from_pretrained(str(folder), "checkpoint_best.pt", str(corpus.data))
    expected = generated("lstm_luong_attention", *SOFT)
    sources = [" ".join(expected[number].source) for number in sorted(expected)]
    assert model.translate(sources) == [expected[number].best.detokenized for number in sorted(expected)]


# Bad input


def test_a_source_longer_than_the_maximum_is_refused(corpus, trained):
    flags = ("--path", trained("gru_rnnsearch").best, "--gen-subset", "test2")
    message = error_message(run("generate", corpus.data, *USER_DIR, *flags, cwd=corpus.data, fails=True))
    assert f"max_positions=({LONGEST}, {LONGEST})" in message
    assert "--skip-invalid-size-inputs-valid-test" in message


def test_another_dictionary_is_refused(corpus, trained, tmp_path):
    other = shutil.copytree(corpus.data, tmp_path / "data")
    words = read_lines(other / "dict.en.txt")
    write_lines(other / "dict.en.txt", [*words, *(f"another{number} 1" for number in range(8))])
    flags = ("--path", trained("gru_rnnsearch").best)
    message = error_message(run("generate", other, *USER_DIR, *flags, cwd=tmp_path, fails=True))
    size = 4 + len(words)  # the four special symbols
    assert re.search(rf"\b{size}\b.*\b{size + 8}\b", message) and "dict" in message


def test_a_checkpoint_that_runs_code_is_refused(corpus, tmp_path):
    class Harmful:
        def __reduce__(self):
            return open, (str(tmp_path / "harm"), "w")

    torch.save({"args": Harmful(), "model": {}}, tmp_path / "checkpoint.pt")
    flags = ("--path", tmp_path / "checkpoint.pt")
    output = run("generate", corpus.data, *USER_DIR, *flags, cwd=tmp_path, fails=True)
    assert "open" in error_message(output)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    "flags, named",
    [
        (["--decoder-hidden-size", "48"], ["--encoder-hidden-size (16", "--decoder-hidden-size (48"]),
        (["--encoder-layers", "2"], ["--encoder-layers (2", "--decoder-layers (1"]),
        (["--dropout", "1.5"], ["--dropout is 1.5"]),
        (["--fp16", "--cpu"], ["--fp16 wants a GPU; leave it out, or train in bfloat16 with --bf16"]),
    ],
    ids=["widths", "layers", "dropout", "fp16"],
)
def test_a_model_that_cannot_be_is_refused(corpus, tmp_path, flags, named):
    settings = ("--optimizer", "adam", "--max-tokens", 500, *tiny_model("lstm_luong_attention"), *flags)
    output = run("train", corpus.data, *USER_DIR, *settings, cwd=tmp_path, fails=True)
    for words in named:
        assert words in error_message(output)
    assert not list(tmp_path.glob("**/*.pt"))


def test_a_folder_with_the_checkpoint_of_another_architecture_is_refused(corpus, trained, tmp_path):
    shutil.copy(trained("gru_rnnsearch").best, tmp_path / "checkpoint_last.pt")
    settings = ("--optimizer", "adam", "--max-tokens", 500, *tiny_model("lstm_kv_baseline"), "--save-dir", tmp_path)
    output = run("train", corpus.data, *USER_DIR, *settings, cwd=tmp_path, fails=True)
    assert "checkpoint_last.pt; please ensure that the architectures match" in error_message(output)


def test_a_forgotten_user_dir_is_named_by_the_architecture_that_is_missing(corpus, tmp_path):
    output = run(
        "train", corpus.data, "--arch", "gru_rnnsearch", "--optimizer", "adam", cwd=tmp_path, fails=True, fresh=True
    )
    assert "argument --arch/-a: invalid choice: 'gru_rnnsearch'" in output
