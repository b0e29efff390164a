"""Any mechanism in any family of decoders, also one that remembers: against naive loops, step by step, and in gradients."""

from collections.abc import Callable

import pytest
import torch
from naive import choi, simon, tu
from naive.recurrent import lstm_step

from fairseq_attn_zoo.attention import (
    AdditiveAttention,
    CoverageAttention,
    FineGrainedAttention,
    MemoryNetworkAttention,
    WordAwareAttention,
)
from fairseq_attn_zoo.cells import ConditionalLSTMCell
from fairseq_attn_zoo.decoders import (
    AttendThenUpdateDecoder,
    FreeRunningDecoder,
    InputFeedingDecoder,
    MemoryNetworkDecoder,
    TargetWords,
    joined_initial_state,
    map_tensors,
)
from fairseq_attn_zoo.encoders import EncoderOutput

EXACT = {"rtol": 1e-10, "atol": 1e-10}
EMBED, HIDDEN, SCORE, VOCABULARY = 5, 6, 4, 9
LENGTHS = (4, 2, 3)  # words of each source
WORDS = 5  # of each target


# One sentence's attention in loops: from the query, y_{t-1} and the ids so far to weights and context.
Naive = Callable[[torch.Tensor, torch.Tensor, list[int]], tuple[torch.Tensor, torch.Tensor]]


def naive_coverage(attention: CoverageAttention, source: torch.Tensor) -> Naive:
    parameters = {
        "W": attention.query_projection.weight,
        "V": attention.source_projection.weight,
        "v": attention.energy,
        "V_a": attention.coverage_projection.weight,
        "U_f": attention.fertility_projection.weight,
    }
    fertilities = tu.fertility(parameters, source, attention.max_fertility)
    covered = [source.new_zeros(()) for _ in source]

    def attend(state, word, ids):
        nonlocal covered
        weights, covered = tu.attend(parameters, state, source, covered, fertilities)
        return torch.stack(weights), sum(weight * value for weight, value in zip(weights, source, strict=True))

    return attend


def naive_hops(attention: MemoryNetworkAttention, source: torch.Tensor) -> Naive:
    parameters = {
        "key_words": attention.key_words.weight,
        "value_words": attention.value_words.weight,
        "key_times": attention.key_times,
        "value_times": attention.value_times,
    }

    def attend(state, word, ids):
        context, on_source, _ = simon.answer(
            parameters, state, source, ids, attention.source_hops, attention.target_hops
        )
        return on_source[-1], context

    return attend


def naive_choi(variant: str) -> Callable[[WordAwareAttention, torch.Tensor], Naive]:
    def build(attention: WordAwareAttention, source: torch.Tensor) -> Naive:
        parameters = {
            "W": attention.query_projection.weight,
            "U": attention.source_projection.weight,
            "b": attention.source_projection.bias,
            "Y": None if attention.word_projection is None else attention.word_projection.weight,
            ("V" if variant == "att-y-2d" else "v"): attention.energy,
        }

        def attend(state, word, ids):
            if variant != "att-y-2d":
                return choi.attend_word(parameters, state, source, word, variant)
            weights, context = choi.attend_each_value(parameters, state, source, word, variant)
            return weights.mean(1), context

        return attend

    return build


MECHANISMS = {
    "coverage": (lambda: CoverageAttention(HIDDEN, HIDDEN, SCORE), naive_coverage),
    "hops on both": (lambda: MemoryNetworkAttention(HIDDEN, 2, 2, VOCABULARY, 2 * WORDS), naive_hops),
    "one hop on the target": (lambda: MemoryNetworkAttention(HIDDEN, 1, 1, VOCABULARY, WORDS), naive_hops),
    "att": (lambda: WordAwareAttention(HIDDEN, HIDDEN, 0, SCORE), naive_choi("att")),
    "att-y": (lambda: WordAwareAttention(HIDDEN, HIDDEN, EMBED, SCORE), naive_choi("att-y")),
    "att-y, recomputed": (lambda: WordAwareAttention(HIDDEN, HIDDEN, EMBED, SCORE, keep_mib=0), naive_choi("att-y")),
    "att-y-2d": (lambda: FineGrainedAttention(HIDDEN, HIDDEN, EMBED, SCORE), naive_choi("att-y-2d")),
}


def build(family: str, mechanism: str):
    """A decoder in float64 whose weights are large enough that nothing is close to zero or to uniform."""
    torch.manual_seed(1)
    attention = MECHANISMS[mechanism][0]()
    if family == "no LSTM":
        decoder = MemoryNetworkDecoder(attention)
    elif family == "attend, then update":
        decoder = AttendThenUpdateDecoder(attention, ConditionalLSTMCell, EMBED, HIDDEN, 1, joined_initial_state)
    else:
        looped = family == "input feeding"
        decoder = (InputFeedingDecoder if looped else FreeRunningDecoder)(
            attention, EMBED, HIDDEN, 1, joined_initial_state
        )
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    return decoder.double()


def sources():
    """The encoder's output for sentences of unequal lengths, and where they are padded."""
    torch.manual_seed(2)
    states = torch.randn(len(LENGTHS), max(LENGTHS), HIDDEN).double()
    final = torch.randn(2, 1, 2, len(LENGTHS), HIDDEN // 2).double()
    mask = torch.arange(max(LENGTHS)) >= torch.tensor(LENGTHS).unsqueeze(1)
    return EncoderOutput(states, final[0], final[1], states), mask


def targets(rows: int = len(LENGTHS), words: int = WORDS) -> TargetWords:
    torch.manual_seed(3)
    return TargetWords(torch.randint(VOCABULARY, (rows, words)), torch.randn(rows, words, EMBED).double())


def naive_decode(family: str, mechanism: str, decoder, row: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Features, T x H, and weights, T x S, of one sentence: one word at a time."""
    encoded, _ = sources()
    words = targets()
    source = encoded.states[row, : LENGTHS[row]]
    attend = MECHANISMS[mechanism][1](decoder.attention, source)
    h, c = (torch.cat(list(final[0, :, row])) for final in (encoded.final_hidden, encoded.final_cell))
    fed_back = h.new_zeros(HIDDEN)
    features, all_weights = [], []
    for number, word in enumerate(words.embedded[row]):
        ids = words.ids[row, : number + 1].tolist()
        if family == "no LSTM":
            weights, feature = attend(decoder.query, word, ids)
        elif family == "attend, then update":
            weights, context = attend(h, word, ids)
            h, c = lstm_step(torch.cat([word, context]), h, c, **cell_of(decoder.cells[0]))
            feature = h
        else:
            if family == "input feeding":
                h, c = lstm_step(torch.cat([word, fed_back]), h, c, **cell_of(decoder.cells[0]))
            else:
                h, c = lstm_step(word, h, c, **cell_of(decoder.rnn, "_l0"))
            weights, context = attend(h, word, ids)
            feature = fed_back = torch.tanh(decoder.attentional.projection.weight @ torch.cat([context, h]))
        features.append(feature)
        all_weights.append(weights)
    return torch.stack(features), torch.stack(all_weights)


def cell_of(module, suffix: str = "") -> dict[str, torch.Tensor]:
    return {name: getattr(module, name + suffix) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}


every_pair = pytest.mark.parametrize(
    "family, mechanism",
    [
        (family, mechanism)
        for family in ("input feeding", "free running", "attend, then update", "no LSTM")
        for mechanism in MECHANISMS
    ],
)


@every_pair
def test_equals_a_loop_over_words_and_positions(family, mechanism):
    """Features, the alignment and every gradient, for a padded batch."""
    decoder = build(family, mechanism)
    encoded, mask = sources()
    memory, state = decoder.begin(encoded, mask)
    output = decoder(targets(), memory, state, need_weights=True)
    naive_features = []
    for row, length in enumerate(LENGTHS):
        features, weights = naive_decode(family, mechanism, decoder, row)
        naive_features.append(features)
        torch.testing.assert_close(output.features[row], features, **EXACT)
        torch.testing.assert_close(output.weights[row, :, :length], weights, **EXACT)
        assert (output.weights[row, :, length:] == 0).all()
    slope = torch.linspace(-1, 1, output.features.numel()).view_as(output.features)
    parameters = list(decoder.parameters())
    fast, naive = (
        torch.autograd.grad((features * slope).sum(), parameters, allow_unused=True, materialize_grads=True)
        for features in (output.features, torch.stack(naive_features))
    )
    torch.testing.assert_close(fast, naive, **EXACT)


@every_pair
@torch.no_grad()
def test_a_beam_word_by_word_goes_on_as_each_hypothesis_would_alone(family, mechanism):
    decoder = build(family, mechanism)
    encoded, mask = sources()
    memory, state = decoder.begin(encoded, mask)
    beam = 2
    state = map_tensors(lambda tensor: tensor.repeat_interleave(beam, dim=0), state)
    owner = torch.arange(len(LENGTHS)).repeat_interleave(beam)
    words = targets(len(owner), 2 * WORDS)
    prefix = TargetWords(words.ids[:, :0], words.embedded[:, :0])
    swap = torch.tensor([1, 0, 2, 2, 5, 4])  # hypotheses of their own sentences
    for number in range(4):
        new = TargetWords(words.ids[:, number : number + 1], words.embedded[:, number : number + 1])
        prefix = TargetWords(*(torch.cat(parts, dim=1) for parts in zip(prefix, new, strict=True)))
        step = decoder(new, memory, state, need_weights=True, need_trace=True)
        for row, sentence in enumerate(owner.tolist()):
            own = encoded._replace(
                states=encoded.states[sentence : sentence + 1],
                final_hidden=encoded.final_hidden[:, :, sentence : sentence + 1],
                final_cell=encoded.final_cell[:, :, sentence : sentence + 1],
            )
            begun = decoder.begin(own, mask[sentence : sentence + 1])
            alone = decoder(TargetWords(*(part[row : row + 1] for part in prefix)), *begun, need_weights=True)
            torch.testing.assert_close(step.features[row, 0], alone.features[0, -1], **EXACT)
            torch.testing.assert_close(step.weights[row, 0], alone.weights[0, -1], **EXACT)
        state = map_tensors(lambda tensor: tensor.index_select(0, swap), step.state)
        prefix = TargetWords(*(part[swap] for part in prefix))


@every_pair
def test_every_parameter_gets_a_gradient_where_all_targets_are_empty(family, mechanism):
    """PyTorch's distributed training waits for each of them."""
    decoder = build(family, mechanism).train()
    memory, state = decoder.begin(*sources())
    decoder(targets(words=1), memory, state).features.sum().backward()
    assert [name for name, parameter in decoder.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize("family", ["input feeding", "free running", "no LSTM"])
def test_coverage_grows_from_word_to_word(family):
    decoder = build(family, "coverage")
    memory, state = decoder.begin(*sources())
    trace = decoder(targets(), memory, state, need_trace=True).trace
    expected = trace["source"].values.cumsum(dim=1) / memory.fertility.unsqueeze(1)
    torch.testing.assert_close(trace["source_coverage"].values, expected)


def test_attention_that_remembers_is_never_asked_for_all_words_at_once():
    attention = CoverageAttention(HIDDEN, HIDDEN, SCORE)
    assert attention.word_by_word and not AdditiveAttention(HIDDEN, HIDDEN, SCORE).word_by_word
    encoded, mask = sources()
    memory = attention.double().memorize(encoded.states, mask)
    with pytest.raises(NotImplementedError, match="CoverageAttention attends word by word"):
        attention(encoded.states, memory, None)
