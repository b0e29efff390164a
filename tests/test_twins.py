"""The fast code against loops written from the papers: logits, weights and gradients, in float64."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from papers import FACTS
from twins import assert_equals_the_twin
from zoo import random_batch, tiny_model, variant_name, variants

sentence_lengths = st.lists(st.tuples(st.integers(1, 6), st.integers(2, 5)), min_size=1, max_size=3)


@pytest.mark.parametrize("variant", variants(), ids=variant_name)
@settings(max_examples=6, deadline=None)
@given(lengths=sentence_lengths, layers=st.integers(1, 2), seed=st.integers(0, 1000))
def test_equals_the_papers_loops(variant, lengths, layers, seed):
    name, flags = variant
    model = tiny_model(name, seed, encoder_layers=layers, decoder_layers=layers, **flags)
    sources = random_batch([source for source, _ in lengths], seed)
    targets = random_batch([target for _, target in lengths], seed + 1)
    assert_equals_the_twin(FACTS[name].twin, model, flags, sources, targets)
