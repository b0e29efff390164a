"""Simon and Schwenk (2017): hops on a memory network."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import simon
from twins import Expected, assert_equals_the_twin, cells, embedded, lstm_cells
from zoo import batch, dictionary, gradients, random_batch, tiny_model, untouched

from fairseq_attn_zoo.attention import DotAttention
from papers import Facts

EXACT = {"rtol": 0, "atol": 0}


def simon_parameters(model) -> dict:
    decoder = model.decoder.network
    parameters = {
        "encoder": cells(model.encoder.network.rnn),
        "W": model.decoder.output_projection.weight,
        "b": model.decoder.output_projection.bias,
    }
    if decoder.attention.target_hops:
        parameters["key_words"] = decoder.attention.key_words.weight
        parameters["value_words"] = decoder.attention.value_words.weight
        parameters["key_times"] = decoder.attention.key_times
        parameters["value_times"] = decoder.attention.value_times
    if hasattr(decoder, "query"):
        parameters["query"] = decoder.query
    else:
        parameters["decoder"] = lstm_cells(decoder)
    return parameters


def memory_network(model, flags: dict, source: list[int], target: list[int]) -> Expected:
    attention = model.decoder.network.attention
    hops = {"source_hops": attention.source_hops, "target_hops": attention.target_hops}
    parameters = simon_parameters(model)
    if flags["no_decoder_lstm"]:
        x = model.encoder.embed_tokens(torch.tensor(source))
        logits, on_source, on_target = simon.without_lstm(parameters, x, target, **hops)
    else:
        x, y = embedded(model, source, target)
        logits, on_source, on_target = simon.memory_network(parameters, x, y, target, **hops)
    trace = {"source_hops": on_source.transpose(1, 2)}  # T x S x hops
    if hops["target_hops"]:
        width = len(target)
        rows = [torch.nn.functional.pad(weights, (0, width - weights.size(1))).t() for weights in on_target]
        trace["target_hops"] = torch.stack(rows)  # T x words x hops
    return Expected(logits, on_source[:, -1], trace)


FACTS = {
    "lstm_memnet_hops": Facts(
        memory_network,
        {
            "encoder_embed_dim": 256,
            "encoder_hidden_size": 128,
            "decoder_embed_dim": 256,
            "decoder_hidden_size": 256,
            "no_decoder_lstm": False,
        },
        own_flags=frozenset({"source_hops", "target_hops", "no_decoder_lstm"}),
        refused=[
            ({"source_hops": 0}, r"--source-hops is 0; it must be from 1 to 7"),
            ({"source_hops": 8}, r"--source-hops is 8; it must be from 1 to 7"),
            ({"target_hops": -1}, r"--target-hops is -1; it must be from 0 to 5"),
            ({"target_hops": 6}, r"--target-hops is 6; it must be from 0 to 5"),
            ({"target_hops": 0, "no_decoder_lstm": True}, r"--no-decoder-lstm with --target-hops 0"),
            ({"encoder_hidden_size": 5}, r"--encoder-hidden-size \(5.*--decoder-hidden-size \(8\)"),
            (
                {"share_decoder_input_output_embed": True, "no_decoder_lstm": True},
                r"--share-decoder-input-output-embed is for the decoder LSTM's embeddings",
            ),
        ],
        without_loop=[{"no_decoder_lstm": True}],
    )
}


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 6), st.integers(2, 5)), min_size=1, max_size=3),
    source_hops=st.integers(1, 7),
    target_hops=st.integers(0, 5),
    without_lstm=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_any_number_of_hops_equals_the_papers_loops(lengths, source_hops, target_hops, without_lstm, seed):
    flags = {"no_decoder_lstm": without_lstm}
    hops = {"source_hops": source_hops, "target_hops": max(target_hops, int(without_lstm))}
    model = tiny_model("lstm_memnet_hops", seed, **hops, **flags)
    sources = random_batch([source for source, _ in lengths], seed)
    targets = random_batch([target for _, target in lengths], seed + 1)
    assert_equals_the_twin(memory_network, model, flags, sources, targets)


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
    assert extra["trace"]["source_hops"].values.shape == (1, 6, 5, source_hops)
    assert extra["trace"]["target_hops"].values.shape == (1, 6, 6, target_hops)


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
    on_source, on_target = (extra["trace"][name].values for name in ("source_hops", "target_hops"))
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
