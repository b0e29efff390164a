"""A memory that a loop reads: the same gradients as autograd's, made with one product."""

import pytest
import torch

from fairseq_attn_zoo.attention.shared import mean_of, scores_of, share


def read(memory, queries, words):
    """A loop like a decoder's: each query follows from the context before it."""
    query, total = queries, 0
    for _ in range(words):
        weights = torch.softmax(scores_of(query, memory), dim=-1)
        query = torch.tanh(mean_of(weights, memory) + query)
        total = total + query.square().sum()
    return total


@pytest.mark.parametrize("words", [1, 5])
def test_gradients_are_autograds(words):
    torch.manual_seed(1)
    memory, queries = torch.randn(2, 4, 3).double().requires_grad_(), torch.randn(2, 2, 3).double().requires_grad_()
    expected = torch.autograd.grad(read(memory, queries, words), (memory, queries))
    shared = torch.autograd.grad(read(share(memory), queries, words), (memory, queries))
    torch.testing.assert_close(shared, expected)


def test_other_uses_of_the_memory_add_their_gradient():
    memory = torch.randn(2, 4, 3).double().requires_grad_()
    queries = torch.randn(2, 2, 3).double()

    def value(memory):
        return read(memory, queries, 3) + memory.exp().sum() + memory[:, 1:].square().sum()

    (expected,) = torch.autograd.grad(value(memory), memory)
    torch.testing.assert_close(torch.autograd.grad(value(share(memory)), memory)[0], expected)


def test_a_second_backward_pass_through_the_same_graph_gives_the_same():
    memory = torch.randn(2, 4, 3).double().requires_grad_()
    total = read(share(memory), torch.randn(2, 2, 3).double(), 3)
    first, second = (torch.autograd.grad(total, memory, retain_graph=True)[0] for _ in range(2))
    torch.testing.assert_close(first, second)


def test_the_memorys_gradient_is_made_once_however_many_words_read_it():
    """What a backward pass allocates of the memory's size does not grow with the number of words."""
    made = []
    for words in (2, 12):
        memory = torch.randn(2, 50, 40).requires_grad_()
        total = read(share(memory), torch.randn(2, 1, 40), words)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
            total.backward()
        products = [event for event in profile.events() if event.name == "aten::bmm"]
        made.append(sum(event.input_shapes[0][1] == 50 for event in products))
    assert made == [1, 1]


def test_nothing_is_wrapped_where_no_gradient_is_wanted():
    memory = torch.randn(2, 4, 3)
    assert share(memory) is memory
    with torch.no_grad():
        trained = memory.clone().requires_grad_()
        assert share(trained) is trained


def test_what_another_backward_pass_left_behind_is_not_counted():
    memory, query = torch.randn(2, 4, 3).double().requires_grad_(), torch.randn(2, 2, 3).double().requires_grad_()
    total = read(share(memory), query, 3)
    (expected,) = torch.autograd.grad(total, memory, retain_graph=True)
    torch.autograd.grad(total, query, retain_graph=True)  # never reaches the memory
    torch.testing.assert_close(torch.autograd.grad(total, memory)[0], expected)
