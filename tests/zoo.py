"""Tiny models of every architecture of the registry, and of every variant that its flags select."""

import itertools
from dataclasses import fields
from enum import Enum
from types import SimpleNamespace

import torch
from fairseq.data import Dictionary
from fairseq.models import MODEL_DATACLASS_REGISTRY, build_model
from omegaconf import OmegaConf

from fairseq_attn_zoo.models import ARCHITECTURES
from fairseq_attn_zoo.models.config import RecurrentConfig
from fairseq_attn_zoo.models.widths import FREE

WORDS = 12
SIZES = {
    "encoder_embed_dim": 5,
    "decoder_embed_dim": 7,
    "decoder_hidden_size": 8,
    "decoder_maxout_size": 3,
    "attention_dim": 6,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "max_source_positions": 50,
    "max_target_positions": 50,
}


def variants() -> list[tuple[str, dict]]:
    """(architecture, flags) for every value of an architecture's own choices and switches."""
    shared = {item.name for item in fields(RecurrentConfig)}
    found = []
    for name in sorted(ARCHITECTURES):
        choices = {}
        for item in fields(MODEL_DATACLASS_REGISTRY[name]):
            if item.name in shared or item.name.startswith("_"):
                continue
            if isinstance(item.type, type) and issubclass(item.type, Enum):
                choices[item.name] = [choice.value for choice in item.type]
            elif item.type is bool:
                choices[item.name] = [False, True]
        for values in itertools.product(*choices.values()):
            found.append((name, dict(zip(choices, values, strict=True))))
    return found


def variant_name(variant: tuple[str, dict]) -> str:
    name, flags = variant
    return "-".join([name, *(f"{flag}={value}" for flag, value in flags.items())])


def dictionary(words: int = WORDS) -> Dictionary:
    made = Dictionary()
    for number in range(words):
        made.add_symbol(f"w{number}")
    return made


def tiny_config(name: str, **flags):
    """The config of a tiny model; a size that the architecture does not have is left out."""
    config = OmegaConf.structured(MODEL_DATACLASS_REGISTRY[name])
    config._name = name
    widths = ARCHITECTURES[name].card.widths
    # Another width than the decoder's, where that is possible.
    encoder = 6 if widths is FREE else widths.encoder_beside(SIZES["decoder_hidden_size"])
    sizes = {**SIZES, "encoder_hidden_size": encoder, **flags}
    for flag, value in sizes.items():
        if flag in config or flag in flags:
            config[flag] = value
    return config


def tiny_task(target_words: int = WORDS, **flags) -> SimpleNamespace:
    """What a model asks of fairseq's task."""
    config = SimpleNamespace(**{"left_pad_target": False, **flags})
    return SimpleNamespace(source_dictionary=dictionary(), target_dictionary=dictionary(target_words), cfg=config)


def tiny_model(
    name: str,
    seed: int = 1,
    task_flags: dict | None = None,
    keep_initial_values: bool = False,
    target_words: int = WORDS,
    **flags,
):
    """A tiny model in float64 whose weights are large enough that nothing is close to zero or to uniform.

    With ``keep_initial_values`` its weights are those that training starts from.
    """
    torch.manual_seed(seed)
    model = build_model(tiny_config(name, **flags), tiny_task(target_words, **(task_flags or {}))).double()
    if keep_initial_values:
        return model.eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    for embedding in filter(None, (model.encoder.embed_tokens, model.decoder.embed_tokens)):
        torch.nn.init.zeros_(embedding.weight[embedding.padding_idx])
    return model.eval()


def pad_batch(sentences: list[list[int]], left: bool = False) -> torch.Tensor:
    """Lists of token ids as B x S, padded with fairseq's padding id."""
    width = max(map(len, sentences))
    rows = []
    for sentence in sentences:
        padding = [dictionary().pad()] * (width - len(sentence))
        rows.append(padding + sentence if left else sentence + padding)
    return torch.tensor(rows)


def random_batch(lengths: list[int], seed: int = 1) -> list[list[int]]:
    """Sentences of random words, each ending in </s>; ``lengths`` count the </s>."""
    words, generator = dictionary(), torch.Generator().manual_seed(seed)
    return [
        [*torch.randint(words.nspecial, len(words), (length - 1,), generator=generator).tolist(), words.eos()]
        for length in lengths
    ]


def teacher_forced(targets: list[list[int]]) -> list[list[int]]:
    """What a decoder reads to predict the targets: </s> first, the last word left out."""
    return [[target[-1], *target[:-1]] for target in targets]


def batch(sources=(5, 2, 4), targets=(6, 3, 4), seed=1):
    """Left-padded sources and teacher-forced targets, as the models take them."""
    words = teacher_forced(random_batch(list(targets), seed + 1))
    return pad_batch(random_batch(list(sources), seed), left=True), None, pad_batch(words)


def gradients(model, inputs) -> dict[str, torch.Tensor]:
    logits, _ = model(*inputs)
    model.zero_grad()
    (logits * torch.linspace(-1, 1, logits.numel()).view_as(logits)).sum().backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def untouched(name, **flags):
    """A model as training starts it, in float64."""
    return tiny_model(name, keep_initial_values=True, **flags)


class Recorder(torch.nn.Module):
    """Stands where dropout stood and remembers what fell to it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = []

    def forward(self, tensor):
        self.seen.append(tensor)
        return 2 * tensor
