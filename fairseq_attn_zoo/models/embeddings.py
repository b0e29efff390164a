"""Embeddings and the output layer: shared as the flags say, and read from files."""

from typing import Any

import torch
from fairseq import utils
from torch import nn


def build_embeddings(
    config: Any, task: Any, output_size: int, embeds_target: bool, output_bias: bool
) -> tuple[nn.Embedding, nn.Embedding | None, nn.Linear]:
    """Source and target embeddings and the output layer, not yet filled.

    Args:
        output_size: F, the width of the features that the output layer reads
        embeds_target: whether there are target embeddings at all
        output_bias: whether the output layer has a bias

    Raises:
        ValueError: if what shall be shared does not fit together
    """
    check_sharing(config, task, output_size)
    source = empty_embedding(task.source_dictionary, config.encoder_embed_dim)
    target = None
    if config.share_all_embeddings:
        target = source
    elif embeds_target:
        target = empty_embedding(task.target_dictionary, config.decoder_embed_dim)
    output = nn.Linear(output_size, len(task.target_dictionary), bias=output_bias)
    if config.share_all_embeddings or config.share_decoder_input_output_embed:
        assert target is not None  # an architecture without target embeddings refuses the flags that share them
        output.weight = target.weight
    source.weight.requires_grad = not config.encoder_freeze_embed
    if target is not None and config.decoder_freeze_embed:
        target.weight.requires_grad = False
    return source, target, output


def check_sharing(config: Any, task: Any, output_size: int) -> None:
    """Refuse matrices that shall be shared and are not of one shape.

    Raises:
        ValueError: one line that names the flags
    """
    if config.share_all_embeddings:
        if task.source_dictionary != task.target_dictionary:
            raise ValueError(
                "--share-all-embeddings needs one dictionary for both languages; "
                "run fairseq-preprocess with --joined-dictionary"
            )
        if config.encoder_embed_dim != config.decoder_embed_dim:
            raise ValueError(
                f"--share-all-embeddings needs --encoder-embed-dim ({config.encoder_embed_dim}) and "
                f"--decoder-embed-dim ({config.decoder_embed_dim}) to be equal"
            )
        if config.decoder_embed_path not in (None, config.encoder_embed_path):
            raise ValueError("--share-all-embeddings reads --encoder-embed-path; leave --decoder-embed-path out")
    share_output = config.share_all_embeddings or config.share_decoder_input_output_embed
    if share_output and config.decoder_embed_dim != output_size:
        raise ValueError(
            f"sharing the target embeddings with the output layer needs --decoder-embed-dim "
            f"({config.decoder_embed_dim}) to equal the width of the features it reads ({output_size})"
        )


def empty_embedding(dictionary: Any, width: int) -> nn.Embedding:
    return nn.Embedding(len(dictionary), width, padding_idx=dictionary.pad())


@torch.no_grad()
def fill_known_rows(embedding: nn.Embedding, dictionary: Any, path: str | None) -> None:
    """Zero the row of padding, and read the words that are in the file ``path``, if there is one.

    Raises:
        ValueError: if the file is not one of embeddings, or of another width
    """
    nn.init.zeros_(embedding.weight[dictionary.pad()])
    if not path:
        return
    try:
        pretrained = utils.parse_embedding(path)
    except (OSError, ValueError, StopIteration) as error:
        raise ValueError(
            f"{path} cannot be read as embeddings ({type(error).__name__}: {error}); it wants a first line with "
            "its numbers of words and values, then a word and its values a line"
        ) from None
    for word, values in pretrained.items():
        if len(values) != embedding.embedding_dim:
            raise ValueError(
                f"{path} has {len(values)} values for {word!r}, but the embeddings here are {embedding.embedding_dim} "
                "wide; make --encoder-embed-dim or --decoder-embed-dim equal to the file's width"
            )
    utils.print_embed_overlap(pretrained, dictionary)
    utils.load_embedding(pretrained, dictionary, embedding)
