"""Our beam search beside fairseq's own: the same hypotheses, scores, attention, and order of ties."""

import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.dataclass.configs import GenerationConfig
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.tasks import FairseqTask
from fairseq.token_generation_constraints import pack_constraints
from hypothesis import given, settings
from hypothesis import strategies as st
from zoo import dictionary, pad_batch, random_batch, tiny_model, variant_name, variants

from fairseq_attn_zoo.search import AligningBeamSearchGenerator, BeamSearchGenerator
from fairseq_attn_zoo.search.candidates import best_candidates, enough_blocks

FEW, SOME, MANY = 2, 12, 230  # target words beside the four special ones; MANY are no multiple of a block
every_variant = pytest.mark.parametrize("variant", variants(), ids=variant_name)


def model_of(name: str, target_words: int, seed: int = 1, end: float = 2.0, **flags):
    """A tiny model whose hypotheses end early here and late there."""
    model = tiny_model(name, seed, target_words=target_words, **flags)
    with torch.no_grad():
        model.decoder.output_projection.weight[dictionary().eos()] *= end * math.log2(target_words)
    return model


def sample_of(lengths: list[int], seed: int = 1) -> dict:
    batch = pad_batch(random_batch(lengths, seed), left=True)
    return {"id": torch.arange(len(lengths)), "net_input": {"src_tokens": batch, "src_lengths": torch.tensor(lengths)}}


def assert_same(ours: list, theirs: list) -> None:
    """The hypotheses of each sentence, in their order; or the same complaint."""
    if isinstance(theirs[0], type):
        assert ours == theirs
        return
    assert [len(hypotheses) for hypotheses in ours] == [len(hypotheses) for hypotheses in theirs]
    for our_sentence, their_sentence in zip(ours, theirs, strict=True):
        for got, expected in zip(our_sentence, their_sentence, strict=True):
            assert got.keys() == expected.keys()
            assert got["tokens"].tolist() == expected["tokens"].tolist()
            for key in ("tokens", "score", "attention", "positional_scores"):
                assert got[key].dtype == expected[key].dtype and got[key].shape == expected[key].shape, key
            for key in ("score", "attention", "positional_scores"):
                torch.testing.assert_close(got[key], expected[key], rtol=1e-6, atol=1e-6)
            if isinstance(expected["alignment"], torch.Tensor) and expected["alignment"].is_floating_point():
                torch.testing.assert_close(got["alignment"], expected["alignment"], rtol=1e-6, atol=1e-6)
            else:
                assert list(got["alignment"]) == list(expected["alignment"])


def both(models: list, sample: dict, target_words: int, arguments: dict | None = None, **options) -> tuple[list, list]:
    """What our generator and fairseq's find, with and without an alignment."""
    classes = BeamSearchGenerator, SequenceGenerator
    if "print_alignment" in options:
        classes = AligningBeamSearchGenerator, SequenceGeneratorWithAlignment
    found = []
    for generator in classes:
        made = generator(models, dictionary(target_words), **options)
        try:
            found.append(made.generate(models, sample, **(arguments or {})))
        except (AssertionError, IndexError) as error:  # such as an alignment of fewer hypotheses than the beam
            found.append([type(error), str(error)])
    return found[0], found[1]


@pytest.fixture
def own_only(monkeypatch):
    """Our search may not hand its work to fairseq's."""
    own = BeamSearchGenerator._generate

    def generate(self, *arguments, **keywords):
        with monkeypatch.context() as patch:
            patch.setattr(SequenceGenerator, "_generate", None)
            return own(self, *arguments, **keywords)

    monkeypatch.setattr(BeamSearchGenerator, "_generate", generate)


@pytest.fixture
def whole_sorts(monkeypatch):
    """Of how many sentences our search has sorted all log-probabilities, as fairseq does."""
    sentences = []
    own = BeamSearchGenerator.choose_as_fairseq

    def choose(self, *arguments, **keywords):
        sentences.append(arguments[2])
        return own(self, *arguments, **keywords)

    monkeypatch.setattr(BeamSearchGenerator, "choose_as_fairseq", choose)
    return sentences


options = st.fixed_dictionaries(
    {
        "beam_size": st.integers(1, 7),
        "max_len_a": st.sampled_from([0, 0.5, 1.3]),
        "max_len_b": st.integers(2, 9),
        "min_len": st.integers(0, 2),
        "normalize_scores": st.booleans(),
        "len_penalty": st.sampled_from([1.0, 0.0, 0.6, 2.0, -0.5]),
        "unk_penalty": st.sampled_from([0.0, 0.0, 1.5, -3.0, math.inf]),
        "temperature": st.sampled_from([1.0, 1.0, 0.5, 3.0]),
    }
)
lengths = st.lists(st.integers(1, 7), min_size=1, max_size=6)
vocabularies = st.sampled_from([FEW, SOME, MANY, MANY])


@every_variant
@pytest.mark.usefixtures("own_only")
@settings(max_examples=3, deadline=None)
@given(options=options, lengths=lengths, vocabulary=vocabularies, seed=st.integers(1, 3), end=st.floats(0.5, 3))
def test_every_architecture_finds_what_fairseqs_search_finds(variant, options, lengths, vocabulary, seed, end):
    name, flags = variant
    model = model_of(name, vocabulary, seed, end, **flags)
    assert_same(*both([model], sample_of(lengths, seed), vocabulary, **options))


prefixes = st.lists(st.lists(st.integers(4, 5), max_size=3), min_size=6, max_size=6)


@pytest.mark.usefixtures("own_only")
@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(st.sampled_from(["lstm_kv_baseline", "gru_rnnencdec", "lstm_fine_grained"]), min_size=1, max_size=3),
    options=options,
    alignment=st.sampled_from([None, "hard", "soft"]),
    prefixes=st.none() | prefixes,
    bos=st.sampled_from([None, 5]),
    lengths=lengths,
    vocabulary=vocabularies,
    seed=st.integers(1, 3),
    end=st.floats(0.5, 3),
)
def test_ensembles_alignments_and_prefixes_are_fairseqs(
    names, options, alignment, prefixes, bos, lengths, vocabulary, seed, end
):
    """Prefixes of unequal lengths, padded as fairseq pads targets; some models of an ensemble have no attention."""
    models = [model_of(name, vocabulary, seed + place, end) for place, name in enumerate(names)]
    arguments = {"bos_token": bos}
    if prefixes is not None:
        prefixes = [
            prefix if len(prefix) == 3 else [*prefix, dictionary().pad()] for prefix in prefixes[: len(lengths)]
        ]
        arguments["prefix_tokens"] = pad_batch(prefixes)
    if alignment and set(names) != {"gru_rnnencdec"}:
        options = {**options, "print_alignment": alignment}
    assert_same(*both(models, sample_of(lengths, seed), vocabulary, arguments, **options))


@settings(max_examples=20, deadline=None)
@given(
    options=options,
    lengths=lengths,
    seed=st.integers(1, 3),
    vocabulary=st.sampled_from([MANY, 4 * MANY]),
    same_words=st.booleans(),
)
@pytest.mark.usefixtures("own_only")
def test_ties_are_broken_as_fairseq_breaks_them(options, lengths, seed, vocabulary, same_words):
    """Each word shares its score with four others, or is read like them too: then whole hypotheses are equal."""
    model = model_of("lstm_kv_baseline", vocabulary, seed)
    layers = [model.decoder.output_projection, model.decoder.embed_tokens][: 1 + same_words]
    with torch.no_grad():
        for layer in layers:
            words = layer.weight[10:200].unflatten(0, (-1, 5))
            layer.weight[10:200] = words[:, :1].expand_as(words).flatten(0, 1)
    assert_same(*both([model], sample_of(lengths, seed), vocabulary, **options))


def test_only_doubtful_sentences_are_sorted_whole(whole_sorts):
    """What makes it fast runs: without ties and off the vocabulary's edge nothing is sorted as fairseq sorts it."""
    model = model_of("lstm_kv_baseline", MANY)
    assert_same(*both([model], sample_of([5, 3, 7, 1]), MANY, beam_size=5, max_len_b=9))
    assert whole_sorts == []
    with torch.no_grad():
        model.decoder.output_projection.weight[20] = model.decoder.output_projection.weight[21]
    assert_same(*both([model], sample_of([5, 3, 7, 1]), MANY, beam_size=5, max_len_b=9))
    assert sum(whole_sorts) < 4 * 10


@settings(max_examples=60, deadline=None)
@given(
    sentences=st.integers(1, 4),
    beam=st.integers(1, 5),
    vocabulary=st.integers(16, 150),
    count=st.integers(1, 12),
    levels=st.sampled_from([3, 10**6]),
    first=st.booleans(),
    seed=st.integers(0, 10),
)
def test_best_candidates_are_the_best(sentences, beam, vocabulary, count, levels, first, seed):
    """Of any size, ties and all, and each of them once."""
    beam = 1 if first else beam
    if not enough_blocks(vocabulary, beam, count):
        return
    draw = torch.Generator().manual_seed(seed)
    log_probs = -torch.randint(levels, (sentences * beam, vocabulary), generator=draw).float()
    scores = -torch.randint(1 if first else levels, (sentences * beam,), generator=draw).float()
    found = best_candidates(log_probs.clone(), scores, sentences, count)
    total = (log_probs + scores.unsqueeze(1)).view(sentences, -1)
    expected = total.topk(count).values
    assert found.scores.tolist() == expected.tolist()
    places = torch.from_numpy(found.beams * vocabulary + found.words)
    assert torch.equal(total.gather(1, places), expected)
    assert all(len(set(of_sentence)) == count for of_sentence in places.tolist())


@pytest.mark.parametrize("vocabulary", [SOME, MANY])
@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_model_that_makes_no_numbers_is_refused_as_fairseq_refuses_it(vocabulary, broken):
    model = model_of("lstm_kv_baseline", vocabulary)
    with torch.no_grad():
        model.decoder.output_projection.weight[7] = broken
    for generator in (BeamSearchGenerator, SequenceGenerator):
        with pytest.raises(AssertionError, match="5 < 5"):
            made = generator([model], dictionary(vocabulary), beam_size=3, max_len_b=5)
            made.generate([model], sample_of([4, 2]))


def test_a_hypothesis_without_numbers_is_never_chosen(monkeypatch):
    """One source is broken, the others are translated like fairseq's."""
    model = model_of("lstm_kv_baseline", MANY)
    with torch.no_grad():
        model.decoder.embed_tokens.weight[20:100] = math.nan
    assert_same(*both([model], sample_of([4, 2, 6]), MANY, beam_size=4, max_len_b=8))


def test_a_minimum_above_the_maximum_is_refused():
    model = model_of("lstm_kv_baseline", SOME)
    for generator in (BeamSearchGenerator, SequenceGenerator):
        with pytest.raises(AssertionError, match="min_len cannot be larger than max_len"):
            made = generator([model], dictionary(), beam_size=3, min_len=6, max_len_b=5)
            made.generate([model], sample_of([4, 2]))


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lengths", [[6], [6, 3, 1, 5]])
def test_other_precisions_find_the_same(precision, lengths):
    """In bfloat16 most sentences have ties."""
    model = model_of("lstm_luong_attention", MANY).to(precision)
    assert_same(*both([model], sample_of(lengths), MANY, beam_size=5, max_len_b=8))


def test_what_it_finds_are_ordinary_tensors():
    """Which take part in a gradient, as those of fairseq's search do."""
    model = model_of("lstm_kv_baseline", MANY)
    ours, _ = both([model], sample_of([4, 2]), MANY, beam_size=4, max_len_b=8)
    scale = torch.ones((), requires_grad=True)
    for hypothesis in ours[0]:
        for key in ("score", "positional_scores", "attention"):
            (scale * hypothesis[key]).sum().backward()
    assert scale.grad is not None


def test_an_output_layer_that_is_not_plain_is_asked():
    model = model_of("lstm_kv_baseline", MANY)
    model.decoder.output_projection.register_forward_hook(lambda layer, inputs, logits: logits / 2)
    assert_same(*both([model], sample_of([4, 2]), MANY, beam_size=4, max_len_b=8))


# --- who searches -----------------------------------------------------------------------------------------------------


def task() -> SimpleNamespace:
    made = SimpleNamespace(target_dictionary=dictionary())
    made.build_generator = lambda models, **flags: FairseqTask.build_generator(
        made, models, SimpleNamespace(**{**vars(GenerationConfig()), **flags})
    )
    return made


def test_fairseqs_tasks_build_our_generator():
    models = [tiny_model("gru_rnnsearch"), tiny_model("lstm_kv_attention")]
    assert type(task().build_generator(models)) is BeamSearchGenerator
    assert type(task().build_generator(models, print_alignment="hard")) is AligningBeamSearchGenerator


def test_a_model_that_is_not_ours_gets_fairseqs_generator():
    class Other(torch.nn.Module):
        pass

    models = [tiny_model("gru_rnnsearch"), Other()]
    assert type(task().build_generator(models)) is SequenceGenerator


def test_the_environment_asks_for_fairseqs_generator(monkeypatch):
    monkeypatch.setenv("FAIRSEQ_ATTN_ZOO_SEARCH", "fairseq")
    assert type(task().build_generator([tiny_model("gru_rnnsearch")])) is SequenceGenerator
    monkeypatch.setenv("FAIRSEQ_ATTN_ZOO_SEARCH", "other")
    with pytest.raises(ValueError, match="FAIRSEQ_ATTN_ZOO_SEARCH is 'other'"):
        task().build_generator([tiny_model("gru_rnnsearch")])


@pytest.mark.parametrize(
    "flags",
    [
        {"sampling": True},
        {"diverse_beam_groups": 2},
        {"diversity_rate": 0.5},
        {"match_source_len": True},
        {"no_repeat_ngram_size": 2},
        {"constraints": "ordered"},
        {"prefix_allowed_tokens_fn": lambda number, words: [2, 5, 6]},
    ],
    ids=lambda flags: next(iter(flags)),
)
def test_what_our_search_does_not_know_is_left_to_fairseqs(flags, monkeypatch):
    models = [model_of("lstm_kv_baseline", SOME)]
    flags = {"beam": 4, "max_len_b": 6, **flags}
    asked = []
    original = SequenceGenerator._generate

    def generate(self, *arguments, **keywords):
        asked.append(type(self))
        return original(self, *arguments, **keywords)

    monkeypatch.setattr(SequenceGenerator, "_generate", generate)
    found = []
    for search in ("zoo", "fairseq"):
        monkeypatch.setenv("FAIRSEQ_ATTN_ZOO_SEARCH", search)
        torch.manual_seed(1)
        constraints = pack_constraints([[torch.tensor([6])], [torch.tensor([7])]]) if "constraints" in flags else None
        generator = task().build_generator(models, **flags)
        found.append(generator.generate(models, sample_of([5, 2]), constraints=constraints))
    assert_same(*found)
    assert asked == [BeamSearchGenerator, SequenceGenerator]


def test_a_reference_is_scored_by_fairseqs_scorer():
    generator = task().build_generator([tiny_model("gru_rnnsearch")], score_reference=True)
    assert not isinstance(generator, SequenceGenerator)


def test_a_model_that_drops_out_is_left_to_fairseqs():
    model = model_of("lstm_kv_baseline", SOME, dropout=0.5)
    found = []
    for generator in (BeamSearchGenerator, SequenceGenerator):
        made = generator([model], dictionary(), beam_size=3, max_len_b=6)
        model.train()
        torch.manual_seed(1)
        found.append(made.generate([model], sample_of([4, 2])))
    assert_same(*found)


def test_a_prefix_that_ends_is_left_to_fairseqs():
    model = model_of("lstm_kv_baseline", SOME)
    prefix = torch.tensor([[6, dictionary().eos()], [6, 7]])
    assert_same(*both([model], sample_of([4, 2]), SOME, {"prefix_tokens": prefix}, beam_size=3, max_len_b=6))
