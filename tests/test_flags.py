"""Every flag of every architecture with values that make no sense: a model, or one line that names a flag."""

from dataclasses import fields
from enum import Enum

import pytest
import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY, build_model
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from zoo import SIZES, pad_batch, random_batch, teacher_forced, tiny_config, tiny_model, tiny_task

from fairseq_attn_zoo.models import ARCHITECTURES
from fairseq_attn_zoo.models.config import RecurrentConfig, flag

every_architecture = pytest.mark.parametrize("name", sorted(ARCHITECTURES))
INTEGERS = st.sampled_from([-(2**63), -7, -1, 0, 1, 2, 3, 4, 5, 6, 8, 9, 10**9, 2**63 - 1])
FLOATS = st.sampled_from([-1.0, -1e-9, 0.0, 0.5, 1.0, 1e300, float("inf"), float("-inf"), float("nan")])


def values(item) -> st.SearchStrategy:
    """Values for one field: those it can have, and those that it should not."""
    kind = item.type
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from([choice.value for choice in kind])
    optional = type(None) in getattr(kind, "__args__", ())
    if optional:
        kind = next(part for part in kind.__args__ if part is not type(None))
    if kind is bool:
        found = st.booleans()
    elif kind is int:
        found = INTEGERS
    elif kind is float:
        found = FLOATS
    else:
        found = st.sampled_from(["", "nowhere.txt", ".", __file__])
    return st.none() | found if optional else found


@every_architecture
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_values_make_a_model_or_one_line_that_names_a_flag(name, data):
    every = [item for item in fields(MODEL_DATACLASS_REGISTRY[name]) if not item.name.startswith("_")]
    chosen = data.draw(st.lists(st.sampled_from(every), min_size=1, max_size=4, unique_by=lambda item: item.name))
    flags = {item.name: data.draw(values(item), label=item.name) for item in chosen}
    try:
        model = tiny_model(name, **flags)
    except ValueError as error:
        assert "\n" not in str(error)
        assert any(flag(item.name) in str(error) for item in every) or any(
            str(value) in str(error) for key, value in flags.items() if key.endswith("_path")
        ), str(error)
        return
    longest = min(model.max_positions())
    batch = pad_batch(random_batch([min(3, longest), 1])), None, pad_batch(teacher_forced(random_batch([2, 1])))
    if longest >= 2:
        assert model(*batch)[0].isfinite().all()


@every_architecture
def test_a_checkpoint_from_before_a_flag_gets_its_default(name):
    """And one from after it, with a flag that is not known yet, is read without that."""
    batch = pad_batch(random_batch([3, 2])), None, pad_batch(teacher_forced(random_batch([2, 4])))
    shared = {item.name for item in fields(RecurrentConfig)} | SIZES.keys()
    own = {item.name: item.default for item in fields(MODEL_DATACLASS_REGISTRY[name]) if item.name not in shared}
    for missing in own:
        older = {**OmegaConf.to_container(tiny_config(name)), "flag_of_a_newer_version": 1}
        del older[missing]
        logits = []
        for config in (OmegaConf.create(older), tiny_config(name)):
            torch.manual_seed(1)
            model = build_model(config, tiny_task(), from_checkpoint=True).eval()
            logits.append(model(*batch)[0])
        torch.testing.assert_close(*logits, rtol=0, atol=0, msg=missing)
