"""Every architecture trains and translates in bfloat16: fairseq's optimizer, beam search and scorer on tiny models."""

import copy

import pytest
import torch
from fairseq.optim import FP16Optimizer
from fairseq.sequence_generator import SequenceGenerator
from fairseq.sequence_scorer import SequenceScorer
from omegaconf import OmegaConf
from torch.nn.functional import cross_entropy
from zoo import dictionary, pad_batch, random_batch, teacher_forced, tiny_model, variant_name, variants

SOURCES, TARGETS = random_batch([5, 2, 4, 1], seed=1), random_batch([4, 3, 5, 1], seed=2)
CONFIG = OmegaConf.create(
    {
        "common": {"bf16": True, "fp16": False, "fp16_scale_window": 1},
        "optimizer": {
            **{"_name": "adam", "lr": [0.03], "adam_betas": "(0.9, 0.999)", "adam_eps": 1e-8, "weight_decay": 0.0},
            **{"use_old_adam": False, "fp16_adam_stats": False, "tpu": False},
        },
    }
)


def sample() -> dict:
    return {
        "net_input": {
            "src_tokens": pad_batch(SOURCES, left=True),
            "src_lengths": torch.tensor(list(map(len, SOURCES))),
            "prev_output_tokens": pad_batch(teacher_forced(TARGETS)),
        },
        "target": pad_batch(TARGETS),
    }


@pytest.mark.parametrize("variant", variants(), ids=variant_name)
def test_every_architecture_trains_and_translates_in_bfloat16(variant):
    name, flags = variant
    wide = tiny_model(name, **flags).float()
    model = copy.deepcopy(wide).bfloat16().train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = FP16Optimizer.build_optimizer(CONFIG, trained)
    batch, losses = sample(), []
    for _ in range(30):
        optimizer.zero_grad()
        logits, _ = model(**batch["net_input"])
        assert logits.dtype == torch.bfloat16
        loss = cross_entropy(logits.float().flatten(0, 1), batch["target"].flatten(), ignore_index=dictionary().pad())
        optimizer.backward(loss)
        optimizer.clip_grad_norm(1.0)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2

    with torch.no_grad():
        for parameter, updated in zip(wide.parameters(), optimizer.fp32_params, strict=True):
            assert updated.dtype == torch.float32
            parameter.copy_(updated)
    scores = []
    for scored in (wide.eval(), model.eval()):
        (found,) = zip(*SequenceScorer(dictionary()).generate([scored], sample()), strict=True)
        assert all(hypothesis["positional_scores"].dtype == torch.float32 for hypothesis in found)
        scores.append(torch.cat([hypothesis["positional_scores"] for hypothesis in found]))
        translated = SequenceGenerator([scored], dictionary(), beam_size=2, max_len_b=8).generate([scored], sample())
        assert len(translated) == len(SOURCES)
        for hypotheses in translated:
            assert all(hypothesis["score"].dtype == torch.float32 for hypothesis in hypotheses)
    torch.testing.assert_close(*scores, rtol=0.05, atol=0.1)
    assert not torch.equal(*scores)
