"""What single mechanisms promise beyond their equations: initial values, loops that are not there, hops, memory."""

import pytest
import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY
from zoo import ARCHITECTURES, dictionary, pad_batch, random_batch, teacher_forced, tiny_model

from fairseq_attn_zoo.attention import AdditiveAttention, DotAttention
from fairseq_attn_zoo.attention.additive import additive_score

EXACT = {"rtol": 0, "atol": 0}


def batch(sources=(5, 2, 4), targets=(6, 3, 4), seed=1):
    """Left-padded sources and teacher-forced targets, as the models take them."""
    words = teacher_forced(random_batch(list(targets), seed + 1))
    return pad_batch(random_batch(list(sources), seed), left=True), None, pad_batch(words)


def gradients(model, inputs) -> dict[str, torch.Tensor]:
    logits, _ = model(*inputs)
    model.zero_grad()
    (logits * torch.linspace(-1, 1, logits.numel()).view_as(logits)).sum().backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


# flags


@pytest.mark.parametrize(
    "flag, architectures",
    {
        "attention_query": {"lstm_kv_baseline", "lstm_kv_attention", "lstm_kv_modified_init"},
        "attention_key_query": {"lstm_kv_attention"},
        "source_hops": {"lstm_memnet_hops"},
        "target_hops": {"lstm_memnet_hops"},
        "no_decoder_lstm": {"lstm_memnet_hops"},
        "attention_variant": {"lstm_fine_grained"},
        "attention_keep_mib": {"lstm_fine_grained"},
        "attention_score": {"lstm_luong_attention"},
        "attention_cnn_dropout": {"lstm_cky_attention"},
        "attention_relu_after_sum": {"lstm_cky_attention"},
        "attention_max_fertility": {"gru_coverage"},
        "decoder_maxout_size": {"gru_rnnencdec", "gru_rnnsearch", "gru_coverage"},
    }.items(),
)
def test_a_flag_exists_only_where_it_is_read(flag, architectures):
    found = {name for name in ARCHITECTURES if hasattr(MODEL_DATACLASS_REGISTRY[name](), flag)}
    assert found == architectures


@pytest.mark.parametrize(
    "name, flags, message",
    [
        ("lstm_memnet_hops", {"source_hops": 0}, r"--source-hops is 0; it must be from 1 to 7"),
        ("lstm_memnet_hops", {"source_hops": 8}, r"--source-hops is 8; it must be from 1 to 7"),
        ("lstm_memnet_hops", {"target_hops": -1}, r"--target-hops is -1; it must be from 0 to 5"),
        ("lstm_memnet_hops", {"target_hops": 6}, r"--target-hops is 6; it must be from 0 to 5"),
        ("lstm_memnet_hops", {"target_hops": 0, "no_decoder_lstm": True}, r"--no-decoder-lstm with --target-hops 0"),
        ("lstm_memnet_hops", {"encoder_hidden_size": 5}, r"--encoder-hidden-size \(5.*--decoder-hidden-size \(8\)"),
        (
            "lstm_memnet_hops",
            {"share_decoder_input_output_embed": True, "no_decoder_lstm": True},
            r"--share-decoder-input-output-embed is for the decoder LSTM's embeddings",
        ),
        (
            "lstm_kv_attention",
            {"decoder_hidden_size": 7},
            r"--decoder-hidden-size is 7, which is odd.*decoder state is cut into two halves",
        ),
        (
            "lstm_kv_attention",
            {"encoder_hidden_size": 5},
            r"--encoder-hidden-size is 5, which is odd.*encoder direction is cut into two halves",
        ),
        (
            "lstm_kv_modified_init",
            {"decoder_hidden_size": 7},
            r"--decoder-hidden-size is 7, which is odd.*decoder state is cut into two halves",
        ),
        (
            "lstm_cky_baseline",
            {"encoder_hidden_size": 6},
            r"--encoder-hidden-size \(6, one direction\) must be equal to --decoder-hidden-size \(8\)",
        ),
        (
            "lstm_cky_attention",
            {"encoder_hidden_size": 7, "decoder_hidden_size": 7},
            r"--encoder-hidden-size is 7, which is odd.*deduction unit halves its states",
        ),
        ("lstm_cky_attention", {"attention_cnn_dropout": 1.0}, r"--attention-cnn-dropout is 1.0"),
        ("lstm_fine_grained", {"attention_keep_mib": -1}, r"--attention-keep-mib is -1; it must be at least 0"),
        ("gru_coverage", {"attention_max_fertility": 0}, r"--attention-max-fertility is 0; it must be at least 1"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_in_one_line(name, flags, message):
    with pytest.raises(ValueError, match=message) as refused:
        tiny_model(name, **flags)
    assert "\n" not in str(refused.value)


# no loop over target positions


@pytest.mark.parametrize(
    "name, flags",
    [
        ("lstm_kv_baseline", {}),
        ("lstm_kv_attention", {}),
        ("lstm_kv_modified_init", {}),
        ("lstm_kv_attention", {"attention_query": "current", "attention_key_query": "projected"}),
        ("lstm_memnet_hops", {"no_decoder_lstm": True}),
        ("lstm_luong_attention", {"decoder_no_input_feeding": True}),
    ],
)
def test_training_attends_for_all_target_words_in_one_call(name, flags):
    model = tiny_model(name, **flags).train()
    calls = []
    model.decoder.network.attention.register_forward_hook(lambda module, arguments, output: calls.append(arguments[0]))
    model(*batch(targets=(6, 3, 4)))
    assert [query.shape[:2] for query in calls] == [(3, 6)]


# Mino et al. (2017)


def test_the_modified_initialisation_zeroes_what_reads_the_contexts_upper_half_and_nothing_else():
    model = untouched("lstm_kv_modified_init")
    weight = model.decoder.network.readout.weight  # W_d, K x 2K
    size = weight.size(0)
    zero = weight == 0
    assert zero[:, size : size + size // 2].all()
    assert not zero[:, :size].any()
    assert not zero[:, size + size // 2 :].any()
    assert not (untouched("lstm_kv_baseline").decoder.network.readout.weight == 0).any()


def test_the_zero_block_trains_away_from_zero():
    model = untouched("lstm_kv_modified_init").train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients(model, batch())
    optimizer.step()
    size = model.decoder.network.readout.weight.size(0)
    assert (model.decoder.network.readout.weight[:, size : size + size // 2] != 0).all()


@pytest.mark.parametrize("name", ["lstm_kv_baseline", "lstm_kv_attention", "lstm_kv_modified_init"])
def test_minos_weights_start_from_the_papers_normal_distribution(name):
    model = untouched(name, encoder_hidden_size=64, decoder_hidden_size=64)
    for parameter_name, parameter in model.named_parameters():
        if "bias" in parameter_name:
            assert (parameter == 0).all(), parameter_name
        elif parameter.numel() > 4000 and not (name.endswith("init") and "readout" in parameter_name):
            assert 0.045 < parameter.std().item() < 0.055, parameter_name


def untouched(name, **flags):
    """A model as training starts it, in float64."""
    return tiny_model(name, keep_initial_values=True, **flags)


class Recorder(torch.nn.Module):
    """Stands where dropout stood and remembers what fell to it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = []

    def forward(self, tensor):
        self.seen.append(tensor)
        return 2 * tensor


def test_minos_dropout_falls_on_the_top_layers_outputs_only():
    """One dropped output serves query and readout; neither d_0 nor the recurrence nor the layer below is dropped."""
    model = tiny_model("lstm_kv_attention", encoder_layers=2, decoder_layers=2, dropout=0.5)
    encoder, decoder = model.encoder.network, model.decoder.network
    assert encoder.dropout_between.p == 0 and decoder.rnn.dropout == 0
    encoder.dropout, decoder.dropout = Recorder(), Recorder()
    queries, features = [], []
    decoder.attention.register_forward_hook(lambda module, arguments, output: queries.append(arguments[0]))
    decoder.readout.register_forward_hook(lambda module, arguments, output: features.append(arguments[0]))
    inputs = batch()
    model(*inputs)
    assert [tensor.size(-1) for tensor in encoder.dropout.seen] == [encoder.output_size]
    (states,) = decoder.dropout.seen  # of the top layer, N x T x K
    torch.testing.assert_close(queries[0][:, 1:], 2 * states[:, :-1])
    torch.testing.assert_close(features[0][..., : states.size(-1)], 2 * states)
    first = model.encoder(inputs[0])["sentences"].state.layers[-1][0]  # d_0
    torch.testing.assert_close(queries[0][:, 0], first)


@pytest.mark.parametrize("name", ["gru_rnnsearch", "gru_rnnencdec"])
def test_rnnsearchs_dropout_falls_on_the_state_that_is_read_out_and_on_the_features_not_on_the_recurrence(name):
    model = tiny_model(name, dropout=0.5)
    decoder = model.decoder.network
    decoder.dropout = Recorder()
    read, features = [], []
    decoder.readout.register_forward_hook(lambda module, arguments, output: read.append(arguments[0]))
    decoder.readout.register_forward_hook(lambda module, arguments, output: features.append(output))
    inputs = batch()
    model(*inputs)
    states, last = decoder.dropout.seen
    torch.testing.assert_close(read[0], 2 * states)
    torch.testing.assert_close(features[0], last)
    decoder.dropout = torch.nn.Identity()
    read.clear()
    model(*inputs)
    torch.testing.assert_close(read[0], states)


@pytest.mark.parametrize("cnn, expected", [(None, 0.2), (0.3, 0.3)])
def test_the_charts_dropout_is_apart_from_the_lstms(cnn, expected):
    model = tiny_model("lstm_cky_attention", dropout=0.2, attention_cnn_dropout=cnn)
    assert model.decoder.network.attention.units.dropout == expected
    assert model.encoder.network.dropout.p == model.encoder.network.dropout_between.p == 0.2
    assert model.decoder.network.dropout.p == 0.2


# Simon and Schwenk (2017)


@pytest.mark.parametrize("without_lstm, hops", [(False, (5, 1)), (True, (7, 3))])
def test_the_papers_best_numbers_of_hops_are_the_defaults(without_lstm, hops):
    attention = tiny_model("lstm_memnet_hops", no_decoder_lstm=without_lstm).decoder.network.attention
    assert (attention.source_hops, attention.target_hops) == hops


def test_without_a_decoder_lstm_the_encoder_may_have_any_number_of_layers():
    model = tiny_model("lstm_memnet_hops", no_decoder_lstm=True, encoder_layers=2)
    assert model.encoder.network.num_layers == 2


def test_one_hop_on_the_source_is_plain_dot_product_attention():
    model = tiny_model("lstm_memnet_hops", source_hops=1, target_hops=0)
    inputs = batch()
    hops, hop_extra = model(*inputs)
    hop_gradients = gradients(model, inputs)
    size = model.decoder.network.attention.context_size
    model.decoder.network.attention = DotAttention(size, size)
    model.encoder.begin = model.decoder.network.begin
    plain, plain_extra = model(*inputs)
    torch.testing.assert_close(hops, plain, **EXACT)
    torch.testing.assert_close(hop_extra["attn"][0], plain_extra["attn"][0], **EXACT)
    torch.testing.assert_close(hop_gradients, gradients(model, inputs), **EXACT)


@pytest.mark.parametrize("without_lstm", [False, True])
@pytest.mark.parametrize("source_hops, target_hops", [(3, 1), (7, 5), (1, 2)])
def test_a_trained_model_runs_with_another_number_of_hops(without_lstm, source_hops, target_hops):
    trained = tiny_model("lstm_memnet_hops", no_decoder_lstm=without_lstm)
    flags = {"no_decoder_lstm": without_lstm, "source_hops": source_hops, "target_hops": target_hops}
    other = tiny_model("lstm_memnet_hops", seed=7, **flags)
    other.load_state_dict(trained.state_dict())
    _, extra = other(*batch(sources=(5,), targets=(6,)), need_trace=True)
    assert extra["trace"]["source_hops"].shape == (1, 6, 5, source_hops)
    assert extra["trace"]["target_hops"].shape == (1, 6, 6, target_hops)


def test_hops_on_the_target_can_be_left_out_of_a_trained_model_but_not_added():
    with_memory, without = (tiny_model("lstm_memnet_hops", target_hops=hops) for hops in (1, 0))
    assert not any("times" in name or "key_words" in name for name, _ in without.named_parameters())
    expected = without.decoder.output_projection.weight.clone()
    saved = without.state_dict()
    without.load_state_dict(with_memory.state_dict())
    assert not torch.equal(without.decoder.output_projection.weight, expected)
    with pytest.raises(ValueError, match="trained with --target-hops 0.*target_hops 0 in --model-overrides"):
        with_memory.load_state_dict(saved)


def test_every_hops_weights_are_distributions_over_what_was_there_to_attend_to():
    model = tiny_model("lstm_memnet_hops", source_hops=3, target_hops=2)
    inputs = batch(sources=(5, 2), targets=(4, 4))
    _, extra = model(*inputs, need_trace=True)
    on_source, on_target = extra["trace"]["source_hops"], extra["trace"]["target_hops"]
    torch.testing.assert_close(on_source.sum(2), torch.ones(2, 4, 3).double())
    torch.testing.assert_close(on_target.sum(2), torch.ones(2, 4, 2).double())
    assert (on_source.movedim(2, 1)[inputs[0] == dictionary().pad()] == 0).all()
    for word in range(4):
        assert (on_target[:, word, word + 1 :] == 0).all()
        assert (on_target[:, word, : word + 1] > 0).all()


def test_the_learned_query_starts_at_a_tenth():
    model = untouched("lstm_memnet_hops", no_decoder_lstm=True)
    assert model.decoder.network.query.tolist() == pytest.approx([0.1] * 8)
    assert model.decoder.output_projection.bias is None
    assert model.decoder.embed_tokens is None


@pytest.mark.parametrize("without_lstm", [False, True])
def test_a_target_longer_than_the_time_tables_is_refused_with_the_flags(without_lstm):
    model = tiny_model("lstm_memnet_hops", max_target_positions=4, no_decoder_lstm=without_lstm)
    with pytest.raises(ValueError, match="5 words is longer than the 4 distances.*--max-target-positions.*--max-len-b"):
        model(*batch(sources=(3,), targets=(5,)))


# Choi, Cho and Bengio (2018)


@pytest.mark.parametrize("variant", ["att", "att-y", "att-y-2d"])
def test_recomputing_attention_changes_no_gradient_and_keeps_far_less(variant):
    inputs = batch(sources=(20, 15), targets=(20, 12))
    kept, recomputed = (
        tiny_model("lstm_fine_grained", attention_variant=variant, attention_keep_mib=mib, attention_dim=64).train()
        for mib in (1024, 0)
    )
    kept_gradients, kept_bytes = gradients_and_saved_bytes(kept, inputs)
    gradients_again, bytes_again = gradients_and_saved_bytes(recomputed, inputs)
    torch.testing.assert_close(gradients_again, kept_gradients, rtol=1e-12, atol=1e-12)
    largest = 2 * 20 * 20 * 64 * 8  # the hidden layer of every pair of words, in float64
    assert kept_bytes - bytes_again > 0.9 * largest


def gradients_and_saved_bytes(model, inputs):
    """The gradients, and the bytes that the forward pass kept for the backward pass."""
    saved = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logits, _ = model(*inputs)
        total = sum(saved.values())
    (logits * torch.linspace(-1, 1, logits.numel()).view_as(logits)).sum().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}, total


def test_every_dimension_has_its_own_distribution_over_the_source():
    model = tiny_model("lstm_fine_grained", attention_variant="att-y-2d")
    inputs = batch(sources=(5, 2), targets=(4, 4))
    _, extra = model(*inputs, need_trace=True)
    weights = extra["trace"]["source_dimensions"]
    assert weights.shape == (2, 4, 5, model.encoder.network.output_size)
    torch.testing.assert_close(weights.sum(2), torch.ones(2, 4, weights.size(3)).double())
    assert (weights.movedim(2, 1)[inputs[0] == dictionary().pad()] == 0).all()
    assert weights[0, 0].std(dim=1).min() > 1e-3  # not one score for all dimensions
    torch.testing.assert_close(weights.mean(3), extra["attn"][0])


# Tu et al. (2016)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_every_fertility_starts_at_half_of_the_largest(most):
    model = untouched("gru_coverage", attention_max_fertility=most)
    memory = model.encoder(batch()[0])["sentences"].memory
    assert (memory.fertility == most / 2).all()
    assert 0 < model.decoder.network.attention.coverage_projection.weight.abs().max() < 0.01


@pytest.mark.parametrize("most", [1, 3])
def test_coverage_is_the_sum_of_the_weights_so_far_divided_by_the_fertility(most):
    model = tiny_model("gru_coverage", attention_max_fertility=most)
    inputs = batch()
    _, extra = model(*inputs, need_trace=True)
    weights, coverage = extra["trace"]["source"], extra["trace"]["source_coverage"]
    torch.testing.assert_close(weights, extra["attn"][0], **EXACT)
    fertility = weights.cumsum(1) / coverage  # N x T x S; no number at padding
    real = inputs[0] != dictionary().pad()
    for row in range(len(real)):
        of_row = fertility[row][:, real[row]]
        torch.testing.assert_close(of_row, of_row[:1].expand_as(of_row))  # the same for every target word
        assert of_row.min() > 0 and of_row.max() < most
        assert (coverage[row][:, ~real[row]] == 0).all()


def test_coverage_that_is_not_read_leaves_rnnsearch():
    model = tiny_model("gru_coverage")
    attention = model.decoder.network.attention
    torch.nn.init.zeros_(attention.coverage_projection.weight)
    inputs = batch()
    covered, _ = model(*inputs)
    plain = AdditiveAttention(query_size=8, source_size=12, attention_size=6).double()
    plain.load_state_dict(attention.state_dict(), strict=False)
    model.decoder.network.attention = plain
    model.encoder.begin = model.decoder.network.begin
    torch.testing.assert_close(model(*inputs)[0], covered)


def test_coverage_is_summed_in_float32_where_the_model_is_in_half_precision():
    attention = tiny_model("gru_coverage").to(torch.bfloat16).decoder.network.attention
    states = torch.ones(1, 1, attention.context_size, dtype=torch.bfloat16)
    memory, query = attention.memorize(states, torch.zeros(1, 1, dtype=torch.bool)), states.new_ones(1, 8)
    coverage = attention.nothing_attended(memory)
    for _ in range(1000):  # words, each of weight 1
        _, _, coverage = attention.attend(query, memory, None, coverage)
    torch.testing.assert_close(coverage, 1000 / memory.fertility, rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    "dtype, tolerance", [(torch.float32, 0.002), (torch.bfloat16, 0.02), (torch.float16, 0.002)], ids=str
)
def test_additive_scores_of_small_states_keep_their_digits(dtype, tolerance):
    """The paper's initial weights make tanh's argument a thousandth: there it must not be noise, in any precision."""
    torch.manual_seed(1)
    query, keys, energy = (
        torch.randn(shape) * scale for shape, scale in (((2, 3, 64), 1e-3), ((2, 5, 64), 1e-3), (64, 1))
    )
    exact = (
        torch.tanh(query.to(dtype).double().unsqueeze(2) + keys.to(dtype).double().unsqueeze(1))
        @ energy.to(dtype).double()
    )
    found = additive_score(query.to(dtype), keys.to(dtype), energy.to(dtype)).double()
    assert (found - exact).norm() < tolerance * exact.norm()
