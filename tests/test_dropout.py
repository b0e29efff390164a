"""Dropout drops as often as it says, scales what it keeps, and sends the gradient where the values went."""

import pytest
import torch

from fairseq_attn_zoo.dropout import Dropout


@pytest.mark.parametrize("probability", [0.1, 0.3, 0.9])
def test_values_are_dropped_as_often_as_asked_and_the_others_keep_the_mean(probability):
    torch.manual_seed(1)
    dropped = Dropout(probability)(torch.ones(400, 500))
    kept = dropped[dropped != 0]
    assert abs(1 - kept.numel() / dropped.numel() - probability) < 0.003  # 2.9 standard deviations or more
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - probability)), rtol=1e-4, atol=0)
    columns = (dropped == 0).float()
    neighbours = torch.corrcoef(torch.stack([columns[:, :-1].flatten(), columns[:, 1:].flatten()]))[0, 1]
    assert neighbours.abs() < 0.01  # four decisions come from one random number


def test_first_and_second_derivatives_are_those_of_the_product_with_the_mask():
    dropout = Dropout(0.4)

    def drop(values):
        torch.manual_seed(3)  # the same mask every time
        return dropout(values)

    values = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(drop, values)
    assert torch.autograd.gradgradcheck(drop, values)


@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 5), (3, 5, 7)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_any_shape_and_precision_comes_back(shape, dtype):
    values = torch.ones(shape, dtype=dtype)
    dropped = Dropout(0.5)(values)
    assert dropped.shape == values.shape and dropped.dtype == dtype
    assert set(dropped.flatten().tolist()) <= {0.0, 2.0}


def test_nothing_is_dropped_in_evaluation_nor_with_probability_zero_and_all_with_one():
    values = torch.randn(4, 5)
    assert Dropout(0.5).eval()(values) is values
    assert Dropout(0.0)(values) is values
    assert not Dropout(1.0)(values).any()


def test_the_seed_decides():
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(Dropout(0.5)(torch.ones(64)))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
