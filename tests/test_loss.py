"""The chunked output layer and loss: fairseq's cross-entropies, without the logits of a batch in memory."""

import types

import pytest
import torch
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from hypothesis import given, settings
from hypothesis import strategies as st
from zoo import dictionary, pad_batch, random_batch, teacher_forced, tiny_model

from fairseq_attn_zoo.criterion import ChunkedCrossEntropyCriterion
from fairseq_attn_zoo.loss import chunked_cross_entropy

TASK = types.SimpleNamespace(target_dictionary=dictionary())


def sample_of(lengths):
    targets = random_batch(lengths, seed=3)
    sources = pad_batch(random_batch(lengths), left=True)
    net_input = {"src_tokens": sources, "src_lengths": None, "prev_output_tokens": pad_batch(teacher_forced(targets))}
    return {"net_input": net_input, "target": pad_batch(targets), "ntokens": sum(lengths), "nsentences": len(lengths)}


def loss_and_gradients(criterion, model, sample):
    loss, sample_size, logged = criterion(model, sample)
    gradients = torch.autograd.grad(loss * 0.7, list(model.parameters()))
    return loss, sample_size, logged, gradients


@pytest.mark.parametrize("name", ["lstm_kv_attention", "gru_rnnsearch"])  # with and without a bias in the output layer
@pytest.mark.parametrize("sentence_avg", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_equals_fairseqs_criterions(name, sentence_avg, smoothing):
    model, sample = tiny_model(name).train(), sample_of([5, 2, 4])
    ours = ChunkedCrossEntropyCriterion(TASK, sentence_avg, smoothing, report_accuracy=True, chunk_mib=1)
    ours.chunk_bytes = 3 * 8 * len(dictionary())  # three words
    loss, sample_size, logged, gradients = loss_and_gradients(ours, model, sample)
    if smoothing:
        theirs = LabelSmoothedCrossEntropyCriterion(TASK, sentence_avg, smoothing, report_accuracy=True)
    else:
        theirs = CrossEntropyCriterion(TASK, sentence_avg)
    expected, expected_size, expected_log, expected_gradients = loss_and_gradients(theirs, model, sample)
    float32 = {"rtol": 1e-5, "atol": 1e-5, "check_dtype": False}  # in which fairseq takes its logarithms
    torch.testing.assert_close(loss, expected, **float32)
    torch.testing.assert_close(gradients, expected_gradients, **float32)
    assert sample_size == expected_size
    for key in expected_log.keys() & {"nll_loss", "ntokens", "nsentences", "n_correct", "total"}:
        assert float(logged[key]) == pytest.approx(float(expected_log[key]))


@settings(max_examples=30, deadline=None)
@given(
    words=st.integers(1, 9),
    vocabulary=st.integers(2, 7),
    chunk=st.integers(1, 10),
    smoothing=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 100),
)
def test_chunks_of_any_size_give_the_same(words, vocabulary, chunk, smoothing, seed):
    torch.manual_seed(seed)
    features, weight, bias = (
        torch.randn(*shape, dtype=torch.float64, requires_grad=True)
        for shape in ((words, 3), (vocabulary, 3), (vocabulary,))
    )
    targets = torch.randint(vocabulary, (words,))
    found = chunked_cross_entropy(features, weight, bias, targets, smoothing, chunk, count_correct=True)
    logits = features @ weight.t() + bias
    log_probabilities = logits.log_softmax(-1)
    nll = -log_probabilities.gather(1, targets.unsqueeze(1)).sum()
    other = smoothing / (vocabulary - 1)
    expected = (1 - smoothing - other) * nll - other * log_probabilities.sum()
    torch.testing.assert_close(found.loss, expected)
    torch.testing.assert_close(found.nll, nll)
    assert found.correct == (logits.argmax(-1) == targets).sum()
    variables = (features, weight, bias)
    torch.testing.assert_close(
        torch.autograd.grad(found.loss * 2, variables), torch.autograd.grad(expected * 2, variables)
    )


def test_half_precision_stays_close():
    torch.manual_seed(1)
    features, weight = torch.randn(200, 16), torch.randn(50, 16) * 0.3
    targets = torch.randint(50, (200,))
    gradients = []
    for dtype in (torch.float32, torch.bfloat16):
        variables = [tensor.to(dtype).requires_grad_() for tensor in (features, weight)]
        loss = chunked_cross_entropy(*variables, None, targets, chunk=7).loss
        gradients.append([gradient.float() for gradient in torch.autograd.grad(loss, variables)])
    for wide, narrow in zip(*gradients, strict=True):
        assert (wide - narrow).norm() < 0.02 * wide.norm()


def test_without_gradients_only_the_loss_is_computed():
    features, weight = torch.randn(4, 3), torch.randn(5, 3, requires_grad=True)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.no_grad(), torch.profiler.profile(activities=activities) as profile:
        found = chunked_cross_entropy(features, weight, None, torch.tensor([0, 1, 2, 3]), chunk=2)
    assert not found.loss.requires_grad
    assert not any(event.name == "aten::addmm_" for event in profile.events())
    expected = torch.nn.functional.cross_entropy(features @ weight.t(), torch.arange(4), reduction="sum")
    torch.testing.assert_close(found.loss, expected)


def test_a_gradient_that_is_to_be_differentiated_again_is_refused():
    features, weight = torch.randn(5, 3).requires_grad_(), torch.randn(7, 3)
    loss = chunked_cross_entropy(features, weight, None, torch.arange(5)).loss
    with pytest.raises(RuntimeError, match="chunked_cross_entropy cannot be differentiated again; leave create_graph"):
        torch.autograd.grad(loss, features, create_graph=True)


def test_under_autocast_the_loss_is_that_of_half_precision():
    torch.manual_seed(1)
    features, weight, bias = torch.randn(20, 16), torch.randn(50, 16), torch.randn(50)
    targets = torch.randint(50, (20,))
    losses, gradients = [], []
    for dtype in (torch.float32, torch.bfloat16):
        variables = [tensor.to(dtype).requires_grad_() for tensor in (features, weight, bias)]
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.float32):
            losses.append(chunked_cross_entropy(*variables, targets, chunk=7).loss)
        gradients.append([gradient.float() for gradient in torch.autograd.grad(losses[-1], variables)])
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*gradients, rtol=0.01, atol=0.001)


def test_the_memory_is_that_of_two_chunks_however_many_there_are():
    words, vocabulary, size, chunk = 256, 4096, 8, 16
    features = torch.randn(words, size, requires_grad=True)
    weight = torch.randn(vocabulary, size, requires_grad=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        chunked_cross_entropy(features, weight, None, torch.zeros(words, dtype=torch.long), chunk=chunk).loss.backward()
    logits = chunk * vocabulary * 4
    taken = [event.self_cpu_memory_usage for event in profile.events()]
    assert sum(each for each in taken if each >= logits) == 2 * logits


@pytest.mark.parametrize(
    "settings, message",
    [({"label_smoothing": 1.0}, "--label-smoothing is 1.0"), ({"chunk_mib": 0}, "--chunk-mib is 0")],
)
def test_a_value_out_of_range_is_refused_by_its_flag(settings, message):
    values = {"sentence_avg": False, "label_smoothing": 0.0, "report_accuracy": False, "chunk_mib": 1, **settings}
    with pytest.raises(ValueError, match=message):
        ChunkedCrossEntropyCriterion(TASK, **values)


def test_a_model_with_another_output_layer_is_refused():
    model = types.SimpleNamespace(decoder=types.SimpleNamespace())
    criterion = ChunkedCrossEntropyCriterion(TASK, False, 0.0, False, 1)
    with pytest.raises(ValueError, match="output_projection.*use cross_entropy"):
        criterion(model, sample_of([2]))
