"""What every architecture of the registry owes fairseq: batches, beams, weights, gradients, checkpoints."""

import copy
import io

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from hypothesis import given, settings
from hypothesis import strategies as st
from zoo import dictionary, pad_batch, random_batch, teacher_forced, tiny_model, variant_name, variants

from fairseq_attn_zoo.decoders import compiled, map_tensors
from fairseq_attn_zoo.models import ARCHITECTURES

EXACT = {"rtol": 1e-10, "atol": 1e-10}
every_variant = pytest.mark.parametrize("variant", variants(), ids=variant_name)
lengths = st.lists(st.integers(1, 7), min_size=1, max_size=5)


def translate_step_by_step(model, sources, given_targets):
    """Logits and weights of one call a word, as in beam search."""
    encoder_out, state = model.encoder(sources), {}
    logits, weights = [], []
    for words in range(1, given_targets.size(1) + 1):
        step, extra = model.decoder(given_targets[:, :words], encoder_out, state)
        logits.append(step)
        weights.append(extra["attn"][0])
    return torch.cat(logits, 1), None if weights[0] is None else torch.cat(weights, 1)


@every_variant
@settings(max_examples=8, deadline=None)
@given(lengths=lengths, extra=st.integers(0, 3), layers=st.integers(1, 2))
def test_padding_and_neighbours_change_nothing(variant, lengths, extra, layers):
    """A sentence's logits and weights are the same alone, in a batch, padded left, right or on both sides."""
    name, flags = variant
    model = tiny_model(name, encoder_layers=layers, decoder_layers=layers, **flags)
    sources = random_batch(lengths)
    targets = pad_batch(teacher_forced(random_batch([4] * len(lengths), seed=2)))
    pad = torch.full((len(lengths), extra), dictionary().pad())
    left, right = pad_batch(sources, left=True), pad_batch(sources)
    for batch in (left, right, torch.cat([pad, right], 1), torch.cat([pad, right, pad], 1)):
        logits, attention = model(batch, None, targets)
        for row, source in enumerate(sources):
            alone, alone_attention = model(torch.tensor([source]), None, targets[row : row + 1])
            torch.testing.assert_close(logits[row], alone[0], **EXACT)
            if attention["attn"][0] is not None:
                real = batch[row] != dictionary().pad()
                weights = attention["attn"][0][row]
                torch.testing.assert_close(weights[:, real], alone_attention["attn"][0][0], **EXACT)
                assert (weights[:, ~real] == 0).all()


@every_variant
@settings(max_examples=8, deadline=None)
@given(lengths=lengths)
def test_weights_are_a_distribution_over_the_source(variant, lengths):
    name, flags = variant
    model = tiny_model(name, **flags)
    batch = pad_batch(random_batch(lengths), left=True)
    targets = pad_batch(teacher_forced(random_batch([3] * len(lengths))))
    weights = model(batch, None, targets)[1]["attn"][0]
    assert model.card.has_attention == model.decoder.network.has_attention
    if not model.decoder.network.has_attention:
        assert weights is None
        return
    assert weights.shape == (len(lengths), 3, batch.size(1))
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(len(lengths), 3, dtype=weights.dtype), **EXACT)
    assert (weights.transpose(1, 2)[batch == dictionary().pad()] == 0).all()


@every_variant
def test_traced_weights_say_what_they_are_over_and_what_they_sum_to(variant):
    name, flags = variant
    model = tiny_model(name, **flags)
    sources = pad_batch(random_batch([5, 2, 4]), left=True)
    targets = pad_batch(teacher_forced(random_batch([6, 6, 6])))
    _, extra = model(sources, None, targets, need_trace=True)
    assert bool(extra["trace"]) == model.decoder.network.has_attention
    positions = {"source words": (5,), "target words": (6,), "spans": (5, 5)}
    for values, (over, by, total, _) in extra["trace"].values():
        assert values.shape[2:] == (*positions[over], *values.shape[values.dim() - (by is not None) :])
        assert (values >= 0).all()
        sums = values.flatten(2, 1 + len(positions[over])).sum(2)
        if total == "one":
            torch.testing.assert_close(sums, torch.ones_like(sums), **EXACT)
        elif total == "at most one":
            assert (sums < 1 - 1e-3).all()  # if they all summed to one, they should say so
        else:
            assert (sums > 1 + 1e-3).any()
        if over != "target words":
            assert (values.transpose(1, 2)[sources == dictionary().pad()] == 0).all()


@every_variant
def test_word_by_word_equals_all_at_once(variant):
    name, flags = variant
    model = tiny_model(name, encoder_layers=2, decoder_layers=2, **flags)
    sources = pad_batch(random_batch([5, 2, 4]), left=True)
    targets = pad_batch(teacher_forced(random_batch([6, 6, 6])))
    logits, extra = model(sources, None, targets)
    stepped, stepped_weights = translate_step_by_step(model, sources, targets)
    torch.testing.assert_close(stepped, logits, **EXACT)
    if stepped_weights is not None:
        torch.testing.assert_close(stepped_weights, extra["attn"][0], **EXACT)


@every_variant
def test_a_first_call_with_a_long_prefix_goes_on_like_single_words(variant):
    name, flags = variant
    model = tiny_model(name, **flags)
    sources = pad_batch(random_batch([5, 2]), left=True)
    targets = pad_batch(teacher_forced(random_batch([6, 6])))
    logits, _ = model(sources, None, targets)
    encoder_out, state = model.encoder(sources), {}
    prefix, _ = model.decoder(targets[:, :4], encoder_out, state)
    rest, _ = model.decoder(targets, encoder_out, state)
    torch.testing.assert_close(torch.cat([prefix, rest], 1), logits, **EXACT)


@every_variant
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_beams_are_followed_through_reordering_and_shrinking(variant, data):
    """Whatever hypotheses survive, each goes on as if its own source and prefix were decoded alone."""
    name, flags = variant
    model = tiny_model(name, **flags)
    beam, sources = 3, random_batch([4, 1, 6, 2])
    batch = pad_batch(sources, left=True)
    width, owner = batch.size(1), [sentence for sentence in range(len(sources)) for _ in range(beam)]
    order = torch.tensor(owner)
    encoder_out, state = model.encoder.reorder_encoder_out(model.encoder(batch), order), {}
    prefixes = torch.full((len(owner), 1), dictionary().eos())
    for _ in range(4):
        logits, extra = model.decoder(prefixes, encoder_out, state)
        weights = extra["attn"][0]
        for row, sentence in enumerate(owner):
            alone, alone_extra = model(torch.tensor([sources[sentence]]), None, prefixes[row : row + 1])
            torch.testing.assert_close(logits[row, -1], alone[0, -1], **EXACT)
            if weights is not None:
                start = width - len(sources[sentence])
                torch.testing.assert_close(weights[row, -1, start:], alone_extra["attn"][0][0, -1], **EXACT)
        # keep some sentences, and for each of them any hypotheses of its own, as beam search does
        blocks = len(owner) // beam
        kept = data.draw(st.lists(st.integers(0, blocks - 1), min_size=1, unique=True).map(sorted))
        survivors = [
            block * beam + data.draw(st.integers(0, beam - 1), label="survivor") for block in kept for _ in range(beam)
        ]
        order = torch.tensor(survivors)
        owner = [owner[row] for row in survivors]
        encoder_out = model.encoder.reorder_encoder_out(encoder_out, order)
        model.decoder.reorder_incremental_state_scripting(state, order)
        words = torch.randint(dictionary().nspecial, len(dictionary()), (len(owner), 1))
        prefixes = torch.cat([prefixes[order], words], 1)


@every_variant
def test_hypotheses_that_begin_alike_are_read_once(variant):
    """The first word of a beam costs one row a sentence, and its hypotheses go on as if each had been read."""
    name, flags = variant
    model = tiny_model(name, **flags)
    sources = random_batch([4, 1, 6])
    encoder_out = model.encoder(pad_batch(sources, left=True))
    targets = pad_batch(teacher_forced(random_batch([3] * 6)))
    rows = []
    model.decoder.output_projection.register_forward_hook(lambda module, inputs, output: rows.append(output.size(0)))
    logits, traces, state = [], [], {}
    for words in (1, 2, 3):
        output, extra = model.decoder(targets[:, :words], encoder_out, state, need_trace=True)
        logits.append(output)
        traces.append(extra.get("trace", {}))
    assert rows == [3, 6, 6]
    expected, extra = model.decoder(targets, encoder_out, need_trace=True)
    torch.testing.assert_close(torch.cat(logits, 1), expected, **EXACT)
    for key in extra.get("trace", {}):
        if extra["trace"][key].axes.over != "target words":  # of which each step has one more
            stepped = torch.cat([trace[key].values for trace in traces], 1)
            torch.testing.assert_close(stepped, extra["trace"][key].values, **EXACT)
    model.train()
    model.decoder(targets[:, :1], encoder_out, {})
    assert rows[-1] == 6  # each with its own dropout


@every_variant
def test_hypotheses_that_begin_with_words_of_their_own_are_read_one_by_one(variant):
    name, flags = variant
    model = tiny_model(name, **flags)
    encoder_out = model.encoder(pad_batch(random_batch([4, 1, 6]), left=True))
    targets = pad_batch(random_batch([3] * 6))
    stepped, _ = model.decoder(targets, encoder_out, {})
    torch.testing.assert_close(stepped, model.decoder(targets, encoder_out)[0], **EXACT)


@every_variant
def test_an_order_that_is_not_a_beams_is_followed_too(variant):
    name, flags = variant
    model = tiny_model(name, **flags)
    sources = random_batch([4, 1, 6])
    order = torch.tensor([2, 0, 0, 1, 2])
    encoder_out = model.encoder.reorder_encoder_out(model.encoder(pad_batch(sources, left=True)), order)
    prefixes = pad_batch(teacher_forced(random_batch([3] * len(order))))
    logits, _ = model.decoder(prefixes, encoder_out)
    for row, sentence in enumerate(order.tolist()):
        alone, _ = model(torch.tensor([sources[sentence]]), None, prefixes[row : row + 1])
        torch.testing.assert_close(logits[row], alone[0], **EXACT)


@every_variant
def test_memory_is_kept_once_a_sentence(variant):
    """Starting a beam and permuting hypotheses copy nothing; finished sentences lose their rows."""
    name, flags = variant
    model = tiny_model(name, **flags)
    encoder_out = model.encoder(pad_batch(random_batch([4, 6, 3])))
    in_beam = model.encoder.reorder_encoder_out(encoder_out, torch.arange(3).repeat_interleave(5))
    permuted = model.encoder.reorder_encoder_out(in_beam, torch.tensor([4, 3, 2, 1, 0, 5, 5, 5, 9, 9, *range(10, 15)]))
    before = addresses(encoder_out)
    assert before and addresses(permuted) == before
    fewer = model.encoder.reorder_encoder_out(permuted, torch.tensor([0, 1, 2, 3, 4, 10, 11, 12, 13, 14]))
    rows = []
    map_tensors(lambda tensor: rows.append(tensor.size(0)), fewer["sentences"].memory)
    assert set(rows) == {2}


def addresses(encoder_out):
    """Of every tensor of the memory."""
    found = []
    map_tensors(lambda tensor: found.append(tensor.data_ptr()), encoder_out["sentences"].memory)
    return found


@pytest.fixture
def compile_with(monkeypatch):
    """A function that makes ``--compile-decoder`` compile with the given backend, in this test only."""

    def use(backend):
        monkeypatch.setattr(compiled, "BACKEND", backend)
        monkeypatch.setattr(compiled, "cannot_compile", set())
        torch._dynamo.reset()

    return use


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_a_compiled_step_finds_the_same_translations(name, compile_with):
    """Captured by torch.compile, but run by Python: what a C++ compiler makes of it, a test of fairseq-generate shows."""
    graphs = []

    def python(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compile_with(python)
    found = []
    for compile_decoder in (False, True):
        model = tiny_model(name, compile_decoder=compile_decoder)
        generator = SequenceGenerator([model], dictionary(), beam_size=2, max_len_b=4)
        for lengths in ([7, 2, 4], [5]):
            sources = {"src_tokens": pad_batch(random_batch(lengths), left=True), "src_lengths": torch.tensor(lengths)}
            found += [hypotheses[0] for hypotheses in generator.generate([model], {"net_input": sources})]
        assert bool(graphs) == compile_decoder
    half = len(found) // 2
    for plain, compiled_one in zip(found[:half], found[half:], strict=True):
        assert torch.equal(plain["tokens"], compiled_one["tokens"])
        torch.testing.assert_close(plain["positional_scores"], compiled_one["positional_scores"])


def test_longer_translations_are_not_compiled_again(compile_with):
    """Of a decoder whose state grows with every word."""
    graphs = []

    def python(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compile_with(python)
    model = tiny_model("lstm_memnet_hops", compile_decoder=True)
    sources, targets = pad_batch(random_batch([5, 3])), pad_batch(teacher_forced(random_batch([7, 7])))
    with torch.no_grad():
        translate_step_by_step(model, sources, targets[:, :4])
        of_four_words = len(graphs)
        translate_step_by_step(model, sources, targets)
    assert len(graphs) == of_four_words > 0


def test_a_step_that_cannot_be_compiled_runs_as_it_is_and_says_so_once(compile_with, caplog):
    def broken(graph, inputs):
        raise OSError("no such compiler")

    compile_with(broken)
    sources, targets = pad_batch(random_batch([5, 2])), pad_batch(teacher_forced(random_batch([6, 6])))
    logits, _ = translate_step_by_step(tiny_model("gru_rnnsearch", compile_decoder=True), sources, targets)
    torch.testing.assert_close(logits, tiny_model("gru_rnnsearch")(sources, None, targets)[0], **EXACT)
    (warning,) = [record.message for record in caplog.records if "--compile-decoder" in record.message]
    assert "no such compiler" in warning and "\n" not in warning


@every_variant
@pytest.mark.parametrize("beam", [1, 4])
def test_beam_search_in_a_batch_equals_one_sentence_at_a_time(variant, beam):
    name, flags = variant
    model = tiny_model(name, **flags)
    attends = model.decoder.network.has_attention
    model.make_generation_fast_(need_attn=attends)
    sources = random_batch([7, 1, 3, 5])
    generator = SequenceGenerator([model], dictionary(), beam_size=beam, max_len_b=12)

    def translate(batch):
        lengths = (batch != dictionary().pad()).sum(1)
        return generator.generate([model], {"net_input": {"src_tokens": batch, "src_lengths": lengths}})

    for source, hypotheses in zip(sources, translate(pad_batch(sources, left=True)), strict=True):
        alone = translate(torch.tensor([source]))[0]
        assert len(hypotheses) == beam
        for got, expected in zip(hypotheses, alone, strict=True):
            assert got["tokens"].tolist() == expected["tokens"].tolist()
            torch.testing.assert_close(got["positional_scores"], expected["positional_scores"])
            if attends:
                torch.testing.assert_close(got["attention"][-len(source) :], expected["attention"])


@every_variant
def test_beam_search_scores_are_the_teacher_forced_probabilities(variant):
    name, flags = variant
    model = tiny_model(name, **flags)
    batch = pad_batch(random_batch([5, 3]), left=True)
    generator = SequenceGenerator([model], dictionary(), beam_size=3, max_len_b=8)
    sample = {"net_input": {"src_tokens": batch, "src_lengths": (batch != dictionary().pad()).sum(1)}}
    for row, hypotheses in enumerate(generator.generate([model], sample)):
        for hypothesis in hypotheses:
            tokens = hypothesis["tokens"].tolist()
            logits, _ = model(batch[row : row + 1], None, torch.tensor(teacher_forced([tokens])))
            scores = logits[0].log_softmax(-1)[torch.arange(len(tokens)), tokens]
            torch.testing.assert_close(hypothesis["positional_scores"].double(), scores, rtol=1e-5, atol=1e-5)


@every_variant
def test_an_ensemble_averages_probabilities_and_weights(variant):
    name, flags = variant
    models = [tiny_model(name, seed, **flags) for seed in (1, 2)]
    attends = models[0].decoder.network.has_attention
    batch = pad_batch(random_batch([5, 3]), left=True)
    sample = {"net_input": {"src_tokens": batch, "src_lengths": (batch != dictionary().pad()).sum(1)}}
    with_alignment = SequenceGeneratorWithAlignment if attends else SequenceGenerator
    generator = with_alignment(models, dictionary(), beam_size=2, max_len_b=8)
    for row, hypotheses in enumerate(generator.generate(models, sample)):
        best = hypotheses[0]
        prefix = torch.tensor(teacher_forced([best["tokens"].tolist()]))
        outputs = [model(batch[row : row + 1], None, prefix) for model in models]
        mean = torch.stack([logits[0].softmax(-1) for logits, _ in outputs]).mean(0)
        scores = mean.log()[torch.arange(len(best["tokens"])), best["tokens"]]
        torch.testing.assert_close(best["positional_scores"].double(), scores, rtol=1e-5, atol=1e-5)
        if attends:
            weights = torch.stack([extra["attn"][0][0] for _, extra in outputs]).mean(0)
            torch.testing.assert_close(best["attention"].t().double(), weights, rtol=1e-5, atol=1e-5)


@every_variant
@pytest.mark.parametrize("words", [1, 4])
def test_every_parameter_gets_a_gradient_in_every_step(variant, words):
    """PyTorch DDP's default does not look for unused parameters: also a batch of empty targets must reach all."""
    name, flags = variant
    model = tiny_model(name, encoder_layers=2, decoder_layers=2, **flags).train()
    targets = pad_batch(teacher_forced(random_batch([words] * 2)))
    model(pad_batch(random_batch([1, 1])), None, targets)[0].sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@every_variant
def test_a_saved_model_is_loaded_and_gives_the_same_output(variant):
    name, flags = variant
    model = tiny_model(name, **flags)
    sources, targets = pad_batch(random_batch([5, 2])), pad_batch(teacher_forced(random_batch([4, 4])))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    loaded = tiny_model(name, seed=7, **flags)
    loaded.load_state_dict(torch.load(file))
    torch.testing.assert_close(loaded(sources, None, targets)[0], model(sources, None, targets)[0], rtol=0, atol=0)


@every_variant
def test_a_copy_of_a_model_is_independent(variant):
    """fairseq's moving average of parameters copies models: the copy's encoder must use the copy's attention."""
    name, flags = variant
    model = tiny_model(name, **flags)
    sources, targets = pad_batch(random_batch([5, 2])), pad_batch(teacher_forced(random_batch([4, 4])))
    before = model(sources, None, targets)[0]
    twin = copy.deepcopy(model)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    torch.testing.assert_close(twin(sources, None, targets)[0], before, rtol=0, atol=0)


@every_variant
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays_close(variant, dtype):
    name, flags = variant
    model = tiny_model(name, **flags).float()
    sources, targets = pad_batch(random_batch([5, 2])), pad_batch(teacher_forced(random_batch([4, 4])))
    expected = model(sources, None, targets)[0].softmax(-1)
    half = model.to(dtype)(sources, None, targets)[0].float().softmax(-1)
    torch.testing.assert_close(half, expected, rtol=0, atol=0.05)


@every_variant
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays_close_at_the_edges(variant, dtype):
    """The longest sentence that the model reads, one of a single token, and one of nothing but padding."""
    name, flags = variant
    model = tiny_model(name, keep_initial_values=True, **flags).float()
    longest, _ = model.max_positions()
    sources = pad_batch(random_batch([longest, 1, 1]), left=True)
    sources[2] = dictionary().pad()
    targets = pad_batch(teacher_forced(random_batch([longest, 1, 3])))
    expected = model(sources, None, targets)[0].softmax(-1)
    half = model.to(dtype)(sources, None, targets)[0].float().softmax(-1)
    assert half.isfinite().all()
    torch.testing.assert_close(half, expected, rtol=0, atol=0.05)


@every_variant
@pytest.mark.parametrize("half", ["model", "autocast"])
def test_gradients_in_half_precision_are_close(variant, half):
    """All in bfloat16, and mixed under autocast as ``--amp`` does it."""
    name, flags = variant
    sources, targets = pad_batch(random_batch([5, 2])), pad_batch(teacher_forced(random_batch([4, 4])))
    gradients = []
    for dtype in (torch.float32, torch.bfloat16):
        model = tiny_model(name, **flags).to(dtype if half == "model" else torch.float32).train()
        autocast = torch.autocast("cpu", torch.bfloat16, enabled=half == "autocast" and dtype == torch.bfloat16)
        with autocast, torch.backends.mkldnn.flags(enabled=False):  # whose LSTM has no bfloat16 on older processors
            logits, _ = model(sources, None, targets)
        logits.float().log_softmax(-1)[..., 4].sum().backward()
        gradients.append(torch.cat([parameter.grad.float().flatten() for parameter in model.parameters()]))
    wide, narrow = gradients
    assert narrow.isfinite().all()
    assert torch.cosine_similarity(wide, narrow, dim=0) > 0.98


@every_variant
def test_a_source_of_nothing_but_padding_stays_finite(variant):
    name, flags = variant
    model = tiny_model(name, **flags)
    sources = pad_batch(random_batch([3, 3]))
    sources[1] = dictionary().pad()
    logits, _ = model(sources, None, pad_batch(teacher_forced(random_batch([4, 4]))))
    assert logits.isfinite().all()


@every_variant
def test_training_keeps_weights_only_for_an_alignment_criterion(variant):
    name, flags = variant
    sources, targets = pad_batch(random_batch([3])), pad_batch(teacher_forced(random_batch([4])))
    plain = tiny_model(name, **flags).train()
    supervised = tiny_model(name, task_flags={"load_alignments": True}, **flags).train()
    assert plain(sources, None, targets)[1]["attn"] == [None]
    weights = supervised(sources, None, targets)[1]["attn"][0]
    assert (weights is not None) == supervised.decoder.network.has_attention


@every_variant
def test_dropout_is_applied_in_training_and_only_there(variant):
    name, flags = variant
    model = tiny_model(name, dropout=0.5, **flags)
    sources, targets = pad_batch(random_batch([5])), pad_batch(teacher_forced(random_batch([4])))
    torch.testing.assert_close(model(sources, None, targets)[0], model(sources, None, targets)[0], rtol=0, atol=0)
    model.train()
    assert not torch.equal(model(sources, None, targets)[0], model(sources, None, targets)[0])


@every_variant
def test_a_source_beyond_the_maximum_is_refused_with_the_flag_to_raise(variant):
    name, flags = variant
    model = tiny_model(name, max_source_positions=4, **flags)
    with pytest.raises(ValueError, match="5 tokens.*maximum of 4.*--max-source-positions"):
        model.encoder(pad_batch(random_batch([5])))


@every_variant
def test_a_checkpoint_of_another_dictionary_is_refused(variant):
    name, flags = variant
    model = tiny_model(name, **flags)
    words = len(dictionary())
    for kind, matrix in (("source", "encoder.embed_tokens.weight"), ("target", "decoder.output_projection.weight")):
        saved = model.state_dict()
        saved[matrix] = saved[matrix][:-2]
        with pytest.raises(ValueError, match=f"{kind} dictionary of {words - 2} types.*has {words}"):
            model.load_state_dict(saved)
