"""Every architecture against what its paper's file in ``papers/`` says of it: sizes, flags, refusals, loops."""

from dataclasses import fields

import pytest
from papers import FACTS
from zoo import ARCHITECTURES, batch, tiny_model

from fairseq_attn_zoo.models.config import RecurrentConfig

every_architecture = pytest.mark.parametrize("name", sorted(ARCHITECTURES))


@every_architecture
def test_a_papers_file_knows_it(name):
    assert name in FACTS, f"write a tests/papers/test_PAPER.py whose FACTS have {name}"


@every_architecture
def test_defaults_are_the_papers(name):
    config, facts = ARCHITECTURES[name].card.config(), FACTS[name]
    assert {size: getattr(config, size) for size in facts.sizes} == facts.sizes
    assert config.encoder_layers == config.decoder_layers == facts.layers
    assert config.dropout == 0


@every_architecture
def test_a_flag_exists_only_where_it_is_read(name):
    shared = {item.name for item in fields(RecurrentConfig)}
    assert {item.name for item in fields(ARCHITECTURES[name].card.config)} - shared == FACTS[name].own_flags


@pytest.mark.parametrize(
    "name, flags, message", [(name, *refused) for name, facts in FACTS.items() for refused in facts.refused]
)
def test_a_value_that_does_not_fit_is_refused_in_one_line(name, flags, message):
    with pytest.raises(ValueError, match=message) as refused:
        tiny_model(name, **flags)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "name, flags", [(name, flags) for name, facts in FACTS.items() for flags in facts.without_loop]
)
def test_training_attends_for_all_target_words_in_one_call(name, flags):
    model = tiny_model(name, **flags).train()
    calls = []
    model.decoder.network.attention.register_forward_hook(lambda module, arguments, output: calls.append(arguments[0]))
    model(*batch(targets=(6, 3, 4)))
    assert [query.shape[:2] for query in calls] == [(3, 6)]
