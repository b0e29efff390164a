"""The CKY chart: the plain O(S^3) reading's winners, values and gradients, in O(S^2) memory."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import watanabe
from papers.test_watanabe import deduction_unit_parameters
from torch.utils._python_dispatch import TorchDispatchMode
from zoo import dictionary, pad_batch, random_batch, teacher_forced, tiny_model

from fairseq_attn_zoo.chart import DeductionUnits, bracketed, first_cell, memory_check, number_of_cells

TOLERANCE = {"rtol": 1e-9, "atol": 1e-9}


def random_units(size: int, seed: int = 0, **flags) -> DeductionUnits:
    torch.manual_seed(seed)
    units = DeductionUnits(size, **flags).double()
    for parameter in units.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return units


def right_padded(lengths: list[int], size: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    words = torch.randn(len(lengths), max(lengths), size, generator=generator, dtype=torch.float64)
    return words.requires_grad_(), torch.arange(max(lengths)) >= torch.tensor(lengths).unsqueeze(1)


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    half=st.integers(1, 4),
    relu_after_sum=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_winners_values_and_gradients_are_those_of_the_plain_chart(lengths, half, relu_after_sum, seed):
    units = random_units(2 * half, seed, relu_after_sum=relu_after_sum)
    words, padding_mask = right_padded(lengths, 2 * half, seed)
    found = units(words, padding_mask)
    width = max(lengths)
    total, naive_total = 0, 0
    for row, length in enumerate(lengths):
        cells, splits = watanabe.chart(deduction_unit_parameters(units), words[row, :length], relu_after_sum)
        inside = torch.zeros(number_of_cells(width), dtype=torch.bool)
        for (size, start), expected in cells.items():
            index = first_cell(size, width) + start - 1
            inside[index] = True
            torch.testing.assert_close(found.cells[row, index], expected, **TOLERANCE)
            if size > 1:
                assert found.splits[row, index] == splits[size, start]
            coefficients = torch.randn_like(expected)
            total = total + (found.cells[row, index] * coefficients).sum()
            naive_total = naive_total + (expected * coefficients).sum()
        assert torch.equal(found.padding_mask[row], ~inside)
        letters = [chr(ord("a") + number) for number in range(length)]
        assert bracketed(found.splits[row], letters) == watanabe.tree(splits, letters)
    variables = [words, *units.parameters()]
    fast, naive = (torch.autograd.grad(value, variables, allow_unused=True) for value in (total, naive_total))
    for variable, got, expected in zip(variables, fast, naive, strict=True):
        torch.testing.assert_close(got, torch.zeros_like(variable) if expected is None else expected, **TOLERANCE)


@pytest.mark.parametrize("relu_after_sum", [False, True])
def test_gradients_are_numerically_right_with_dropout(relu_after_sum):
    units = random_units(4, dropout=0.4, relu_after_sum=relu_after_sum).train()
    words, padding_mask = right_padded([4, 2], 4)
    names = [name for name, _ in units.named_parameters()]

    def fill(words, *parameters):
        torch.manual_seed(3)  # the same mask every time
        arguments = (words, padding_mask)
        return torch.func.functional_call(units, dict(zip(names, parameters, strict=True)), arguments).cells

    assert torch.autograd.gradcheck(fill, (words, *units.parameters()))


def test_a_gradient_that_is_to_be_differentiated_again_is_refused():
    words = torch.randn(1, 4, 6).requires_grad_()
    cells = DeductionUnits(6)(words, torch.zeros(1, 4, dtype=torch.bool)).cells
    with pytest.raises(RuntimeError, match="the CKY chart cannot be differentiated again; leave create_graph=True out"):
        torch.autograd.grad(cells.sum(), words, create_graph=True)


def test_of_equal_splits_the_shortest_left_part_wins():
    """All words alike and all units blind: every split of every span is as good as any other."""
    units = random_units(4)
    for parameter in units.parameters():
        torch.nn.init.zeros_(parameter)
    found = units(torch.ones(2, 6, 4, dtype=torch.float64), torch.zeros(2, 6, dtype=torch.bool))
    assert (found.splits[:, :6] == 0).all()
    assert (found.splits[:, 6:] == 1).all()
    assert bracketed(found.splits[0], list("abcdef")) == "(a (b (c (d (e f)))))"


def test_dropout_falls_once_on_each_computed_cell_and_on_no_word():
    units = random_units(64, dropout=0.5).train()
    words = torch.randn(1, 6, 64, dtype=torch.float64)
    cells = units(words, torch.zeros(1, 6, dtype=torch.bool)).cells
    assert torch.equal(cells[:, :6], words)
    zero = (cells[:, 6:] == 0).double().mean()
    assert 0.4 < zero < 0.6


class LargestTensor(TorchDispatchMode):
    """Remembers how many values the largest tensor had that any operation made."""

    def __init__(self) -> None:
        super().__init__()
        self.values = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **(keywords or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor):
                self.values = max(self.values, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


def test_no_tensor_of_cubic_size_is_ever_made_nor_kept():
    words, size, batch = 24, 8, 2
    units = random_units(size, dropout=0.1).train()
    states, padding_mask = right_padded([words] * batch, size)
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.numel()
        return tensor

    with LargestTensor() as largest, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        units(states, padding_mask).cells.square().sum().backward()
    chart_values = batch * number_of_cells(words) * size
    candidates = batch * (words**3 - words) // 6 * size  # of all deduction units
    assert candidates > 6 * chart_values
    assert largest.values <= 2 * chart_values
    assert sum(kept.values()) < 4 * chart_values


def test_a_chart_that_does_not_fit_is_refused_before_anything_is_allocated(monkeypatch):
    monkeypatch.setattr(memory_check, "free_memory", lambda device: 2**30)
    units = DeductionUnits(256)
    words = torch.zeros(1, 1, 1).expand(8, 1000, 256)  # takes no memory itself
    padding_mask = torch.zeros(8, 1000, dtype=torch.bool)
    with (
        LargestTensor() as largest,
        pytest.raises(ValueError, match=r"GiB are free.*--max-source-positions") as refused,
    ):
        units(words, padding_mask)
    assert "8 sentences of up to 1000 words need about 26.7 GiB" in str(refused.value)
    assert largest.values == 0


def test_free_memory_is_a_plausible_number_of_bytes():
    assert 2**20 < memory_check.free_memory(torch.device("cpu")) < 2**50


def test_odd_sizes_are_refused():
    with pytest.raises(ValueError, match="size, 7, is odd"):
        DeductionUnits(7)


def test_a_very_long_sentence_has_a_tree_too():
    splits = torch.ones(number_of_cells(1500), dtype=torch.long)
    tree = bracketed(splits, ["w"] * 1500)
    assert tree.count("(") == tree.count(")") == 1499
    with pytest.raises(ValueError, match="3 words, but the chart is of 1 to 2"):
        bracketed(torch.tensor([0, 0, 1]), ["a", "b", "c"])


def test_the_trace_has_one_distribution_over_words_and_spans():
    """alpha' and alpha'' together; nothing beyond the sentence; words and their cells in the first row alike."""
    model = tiny_model("lstm_cky_attention")
    sources = random_batch([5, 2])
    targets = pad_batch(teacher_forced(random_batch([4, 4])))
    _, extra = model(pad_batch(sources, left=True), None, targets, need_trace=True)
    joint, cells = (extra["trace"][name].values for name in ("source_joint", "source_chart"))
    assert cells.shape == (2, 4, 5, 5)
    torch.testing.assert_close(joint.sum(2) + cells.sum((2, 3)), torch.ones(2, 4).double())
    torch.testing.assert_close(joint, cells[..., 0])
    for row, length in enumerate((5, 2)):
        starts = range(5 - length, 5)  # left-padded
        for position in range(5):
            spans = 5 - position if position in starts else 0
            assert (cells[row, :, position, :spans] > 0).all()
            assert (cells[row, :, position, spans:] == 0).all()


def test_a_model_gives_the_trees_of_a_batch():
    model = tiny_model("lstm_cky_attention")
    sources = random_batch([5, 1, 3])
    trees = model.source_trees(pad_batch(sources, left=True))
    for source, tree in zip(sources, trees, strict=True):
        assert tree.replace("(", "").replace(")", "").split() == [dictionary()[word] for word in source]
        assert tree.count("(") == len(source) - 1
        assert model.source_trees(torch.tensor([source])) == [tree]
