"""Rows that a loop reads: the same gradients as autograd's, made with one product, and nothing left behind."""

import gc
import threading
import weakref

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from zoo import pad_batch, random_batch, teacher_forced, tiny_model, variant_name, variants

from fairseq_attn_zoo.attention import AttentionMemory, Rows, share
from fairseq_attn_zoo.attention.shared import Ledger
from fairseq_attn_zoo.decoders import AttendThenUpdateDecoder, InputFeedingDecoder, map_tensors


def step(rows, query):
    """A word of a decoder's loop: the next query follows from the context."""
    weights = torch.softmax(rows.scores(query), dim=-1)
    return torch.tanh(rows.mean(weights) + query)


def read(rows, query, words):
    total = 0
    for _ in range(words):
        query = step(rows, query)
        total = total + query.square().sum()
    return total


def tensors():
    """A memory of 2 sentences of 4 positions, and 2 queries for each."""
    torch.manual_seed(1)
    return torch.randn(2, 4, 3).double().requires_grad_(), torch.randn(2, 2, 3).double().requires_grad_()


@pytest.mark.parametrize("words", [1, 5])
def test_gradients_are_autograds(words):
    memory, query = tensors()
    expected = torch.autograd.grad(read(Rows(memory), query, words), (memory, query))
    shared = torch.autograd.grad(read(Rows(memory).share(), query, words), (memory, query))
    torch.testing.assert_close(shared, expected)


def test_other_uses_of_the_memory_add_their_gradient():
    memory, query = tensors()

    def value(rows):
        selected = rows.map(lambda tensor: tensor[:, 1:].float().double())
        return read(rows, query, 3) + rows.tensor.exp().sum() + read(selected, query, 2)

    (expected,) = torch.autograd.grad(value(Rows(memory)), memory)
    torch.testing.assert_close(torch.autograd.grad(value(Rows(memory).share()), memory)[0], expected)


def test_the_gradient_can_be_asked_for_where_the_loop_reads():
    memory, query = tensors()
    encoded = memory.exp()
    (expected,) = torch.autograd.grad(read(Rows(encoded), query, 3), encoded)
    rows = Rows(encoded).share()
    torch.testing.assert_close(torch.autograd.grad(read(rows, query, 3), rows.tensor)[0], expected)


def test_a_selection_of_a_shared_memory_reads_what_was_selected():
    """As beam search selects sentences: with another gradient, or other rows, than those of the first memory."""
    memory, query = tensors()
    rows, order = Rows(memory), torch.tensor([1, 1, 0])
    shared = share(AttentionMemory(rows, rows, torch.zeros(2, 4, dtype=torch.bool)))
    selected = map_tensors(lambda tensor: tensor.index_select(0, order), shared)
    (expected,) = torch.autograd.grad(read(Rows(memory[order]), query[order], 3), memory)
    torch.testing.assert_close(torch.autograd.grad(read(selected.values, query[order], 3), memory)[0], expected)
    assert selected.padding_mask.size(0) == 3


def test_keys_that_are_the_values_are_shared_with_them():
    memory, _ = tensors()
    rows = Rows(memory)
    shared = share(AttentionMemory(rows, rows, torch.zeros(2, 4, dtype=torch.bool)))
    assert shared.keys is shared.values and shared.keys is not rows


def test_a_second_backward_pass_through_the_same_graph_gives_the_same():
    memory, query = tensors()
    total = read(Rows(memory).share(), query, 3)
    first, second = (torch.autograd.grad(total, memory, retain_graph=True)[0] for _ in range(2))
    torch.testing.assert_close(first, second)


def test_the_memorys_gradient_is_made_once_however_many_words_read_it():
    """What a backward pass allocates of the memory's size does not grow with the number of words."""
    made = []
    for words in (2, 12):
        memory = torch.randn(2, 50, 40).requires_grad_()
        total = read(Rows(memory).share(), torch.randn(2, 1, 40), words)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
            total.backward()
        products = [event for event in profile.events() if event.name == "aten::bmm"]
        made.append(sum(event.input_shapes[0][1] == 50 for event in products))
    assert made == [1, 1]


def test_nothing_is_wrapped_where_no_gradient_is_wanted():
    rows = Rows(torch.randn(2, 4, 3))
    assert rows.share() is rows
    with torch.no_grad():
        trained = Rows(rows.tensor.clone().requires_grad_())
        memory = AttentionMemory(trained, trained, torch.zeros(2, 4, dtype=torch.bool))
        assert trained.share() is trained and share(memory) is memory


# --- backward passes inside one another and beside one another --------------------------------------------------------


def test_what_another_backward_pass_left_behind_is_not_counted():
    memory, query = tensors()
    total = read(Rows(memory).share(), query, 3)
    (expected,) = torch.autograd.grad(total, memory, retain_graph=True)
    torch.autograd.grad(total, query, retain_graph=True)  # never reaches the memory
    torch.testing.assert_close(torch.autograd.grad(total, memory)[0], expected)


@pytest.mark.parametrize("order", ["checkpoint first", "checkpoint last"])
def test_a_backward_pass_inside_a_reentrant_checkpoint(order):
    memory, query = tensors()

    def value(rows):
        first, second = (lambda given: step(rows, given)), (lambda given: step(rows, given).square())
        if order == "checkpoint first":
            return second(checkpoint(first, query, use_reentrant=True)).sum()
        return checkpoint(second, first(query), use_reentrant=True).sum()

    value(Rows(memory)).backward()
    expected, memory.grad = memory.grad, None
    value(Rows(memory).share()).backward()
    torch.testing.assert_close(memory.grad, expected)


def test_a_backward_pass_inside_a_hook():
    memory, query = tensors()

    def gradients(rows):
        inner = []
        middle = step(rows, step(rows, query))
        other = read(rows, query, 2)
        middle.register_hook(lambda _: inner.append(torch.autograd.grad(other, memory, retain_graph=True)[0]))
        (outer,) = torch.autograd.grad(step(rows, middle).sum() + 3 * other, memory, retain_graph=True)
        return outer, *inner

    torch.testing.assert_close(gradients(Rows(memory).share()), gradients(Rows(memory)))


def test_backward_passes_of_two_threads_through_one_graph():
    memory, query = tensors()
    (expected,) = torch.autograd.grad(read(Rows(memory), query, 3), memory)
    rows = Rows(memory).share()
    first = step(rows, query)
    both = threading.Barrier(2, timeout=30)  # in the middle of its pass each waits until the other is there
    first.register_hook(lambda gradient: both.wait() * 0 + gradient)
    second = step(rows, first)
    total = sum(state.square().sum() for state in (first, second, step(rows, second)))
    found = []

    def backward():
        found.append(torch.autograd.grad(total, memory, retain_graph=True)[0])

    threads = [threading.Thread(target=backward) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    for gradient in found:
        torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("read_rows", [lambda rows, query: rows.scores(query), step], ids=["scores", "step"])
@pytest.mark.parametrize("wanted", ["memory", "query"])
def test_a_gradient_that_is_to_be_differentiated_again_is_refused(wanted, read_rows):
    memory, query = tensors()
    total = read_rows(Rows(memory).share(), query).sum()
    with pytest.raises(RuntimeError, match="cannot be differentiated again; leave create_graph=True out"):
        torch.autograd.grad(total, memory if wanted == "memory" else query, create_graph=True)


# --- what is left of a backward pass that does not reach the memory ---------------------------------------------------


class OutOfMemory(Exception):
    pass


@pytest.fixture
def ledgers(monkeypatch):
    """Those that were opened in this test and are still there."""
    opened = weakref.WeakSet()
    open_ledger = Ledger.__init__

    def note(self, *arguments):
        open_ledger(self, *arguments)
        opened.add(self)

    monkeypatch.setattr(Ledger, "__init__", note)
    return opened


class Watch:
    """A hook of a tensor that does nothing: it lives as long as the graph above the tensor."""

    def __call__(self, gradient):
        return None


def run(model):
    """The loss of a batch, and a reference to something that lives as long as the graph of the source embeddings."""
    references = []

    def watch(_, __, embedded):
        hook = Watch()
        references.append(weakref.ref(hook))
        embedded.register_hook(hook)

    handle = model.encoder.embed_tokens.register_forward_hook(watch)
    targets = random_batch([4, 5, 3], seed=2)
    logits, _ = model(pad_batch(random_batch([5, 3, 4])), None, pad_batch(teacher_forced(targets)))
    handle.remove()
    return logits.square().mean(), references[0]


def reads_in_a_loop(model):
    """Whether this architecture should have ledgers at all."""
    if not isinstance(model.decoder.network, AttendThenUpdateDecoder | InputFeedingDecoder):
        return False
    memory = model.encoder(pad_batch(random_batch([3])))["sentences"].memory
    return any(isinstance(part, Rows) for part in memory)


def nothing_is_left(ledgers, graph):
    if ledgers or graph() is not None:
        gc.collect()
    return not ledgers and graph() is None


@pytest.mark.parametrize("variant", variants(), ids=variant_name)
def test_nothing_is_left_of_a_backward_pass_that_ended_in_an_error(variant, ledgers, monkeypatch):
    name, flags = variant
    model, entries, write = tiny_model(name, **flags).train(), [], Ledger.write

    def fail_at_the_third(self, left, right):
        write(self, left, right)
        entries.append(None)
        if len(entries) == 3:
            raise OutOfMemory

    monkeypatch.setattr(Ledger, "write", fail_at_the_third)
    loss, graph = run(model)
    assert graph() is not None and bool(ledgers) == reads_in_a_loop(model)
    if ledgers:
        with pytest.raises(OutOfMemory):
            loss.backward()
        # What was ready to run when the error came waits in PyTorch's queue until this thread's next backward pass.
        torch.zeros((), requires_grad=True).exp().backward()
    else:
        loss.backward()
    del loss
    assert nothing_is_left(ledgers, graph)


@pytest.mark.parametrize("variant", variants(), ids=variant_name)
def test_nothing_is_left_of_a_backward_pass_that_never_asks_for_the_memory(variant, ledgers):
    name, flags = variant
    model = tiny_model(name, **flags).train()
    parameters = [value for name, value in model.decoder.named_parameters() if "attention." not in name]
    loss, graph = run(model)
    assert graph() is not None and bool(ledgers) == reads_in_a_loop(model)
    torch.autograd.grad(loss, parameters, allow_unused=True)
    del loss
    assert nothing_is_left(ledgers, graph)


def test_backward_passes_that_never_ask_for_the_memory_keep_nothing_while_the_graph_lives():
    memory, query = tensors()
    rows = Rows(memory).share()
    total = read(rows, query, 3)
    torch.autograd.grad(total, query, retain_graph=True)
    assert not rows.ledger.pages
