"""The glue between fairseq and the torch-only encoders and decoders, the same for every architecture.

What crosses it: token ids in, logits and attention weights out (:mod:`.encoder`, :mod:`.decoder`). What an architecture is
stands on its card (:mod:`.registry`).
"""

from typing import Any, ClassVar

import torch
from fairseq.models import FairseqEncoderDecoderModel

from ..decoders import RecurrentDecoder
from ..encoders import RecurrentEncoder, TwoStackEncoder
from .config import check_flags, dropout_or_default
from .decoder import ZooDecoder
from .embeddings import build_embeddings, fill_known_rows
from .encoder import ZooEncoder
from .registry import Card


class RecurrentModel(FairseqEncoderDecoderModel):
    """A recurrent encoder-decoder; an architecture has a card, and builds its two networks from its config."""

    card: ClassVar[Card]

    @classmethod
    def build_networks(
        cls, config: Any, target_vocabulary: int
    ) -> tuple[RecurrentEncoder | TwoStackEncoder, RecurrentDecoder]:
        """The torch-only encoder and decoder of this architecture; their initial values are the card's.

        Args:
            config: of the architecture, checked
            target_vocabulary: number of target types, for a network with embeddings of its own
        """
        raise NotImplementedError

    @classmethod
    def build_model(cls, cfg, task) -> "RecurrentModel":
        """Build the model.

        Raises:
            ValueError: if a flag is out of range or two sizes do not fit together
        """
        card = cls.card
        cls.check(cfg, task)
        # What constructors draw is filled anew: initial values depend on the seed and on the paper's rule alone.
        with torch.random.fork_rng(devices=[]):
            encoder_network, decoder_network = cls.build_networks(cfg, len(task.target_dictionary))
            source, target, output = build_embeddings(
                cfg, task, decoder_network.output_size, card.embeds_target(cfg), card.has_output_bias(cfg)
            )
        encoder = ZooEncoder(
            task.source_dictionary,
            source,
            encoder_network,
            decoder_network.begin,
            dropout_or_default(cfg, "encoder_dropout_in"),
            cfg.max_source_positions,
        )
        decoder = ZooDecoder(
            task.target_dictionary,
            target,
            decoder_network,
            output,
            dropout_or_default(cfg, "decoder_dropout_in"),
            cfg.max_target_positions,
            need_attn_in_training=getattr(task.cfg, "load_alignments", False),
            compile_step=cfg.compile_decoder,
        )
        model = cls(encoder, decoder)
        card.initial_values.fill(model)
        fill_known_rows(source, task.source_dictionary, cfg.encoder_embed_path)
        if target is not None and target is not source:
            fill_known_rows(target, task.target_dictionary, cfg.decoder_embed_path)
        return model

    @classmethod
    def check(cls, cfg, task) -> None:
        """Refuse flags that this architecture cannot have.

        Raises:
            ValueError: one line that names the flag or the flags
        """
        card = cls.card
        check_flags(card.config, cfg)
        if card.starts_layer_by_layer(cfg) and cfg.encoder_layers != cfg.decoder_layers:
            raise ValueError(
                f"--encoder-layers ({cfg.encoder_layers}) and --decoder-layers ({cfg.decoder_layers}) must be equal: "
                "each layer of the decoder starts from a layer of the encoder"
            )
        card.widths.check(cfg)
        if getattr(task.cfg, "left_pad_target", False):
            raise ValueError("--left-pad-target is not for recurrent decoders; leave it out")
        card.check(cfg)

    def load_state_dict(self, state_dict, strict=True, model_cfg=None, args=None):
        """Load parameters.

        Raises:
            ValueError: if the checkpoint was trained with other dictionaries
        """
        for kind, dictionary, name in (
            ("source", self.encoder.dictionary, "encoder.embed_tokens.weight"),
            ("target", self.decoder.dictionary, "decoder.output_projection.weight"),
        ):
            saved = state_dict.get(name)
            if saved is not None and saved.size(0) != len(dictionary):
                raise ValueError(
                    f"the checkpoint was trained with a {kind} dictionary of {saved.size(0)} types, but the data "
                    f"folder's has {len(dictionary)}; use the dict.*.txt files that it was trained with"
                )
        return super().load_state_dict(state_dict, strict, model_cfg, args)
