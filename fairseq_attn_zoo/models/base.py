"""The glue between fairseq and the torch-only encoders and decoders, the same for every architecture.

What crosses it: token ids in, logits and attention weights out; fairseq's left-padded sources become right-padded, and
the weights go back into the order of the sources as they were given; and in beam search the memory of a sentence is
kept once, however many hypotheses it has.
"""

from typing import Any, NamedTuple

import torch
from fairseq import utils
from fairseq.models import (
    FairseqEncoder,
    FairseqEncoderDecoderModel,
    FairseqIncrementalDecoder,
    register_model,
)
from torch import Tensor, nn

from ..decoders import DecoderState, RecurrentDecoder, TargetWords, compiled_step, map_tensors
from ..dropout import Dropout
from ..encoders import RecurrentEncoder, TwoStackEncoder
from .config import RecurrentConfig, check_ranges, dropout_or_default, flag

# Name of every architecture of the package -> its model class; the tests walk through it.
ARCHITECTURES: dict[str, type["RecurrentModel"]] = {}


def register_architecture(name: str, config: type[RecurrentConfig]):
    """fairseq's ``register_model`` with a config of its own, and an entry in :data:`ARCHITECTURES`."""

    def register(model: type["RecurrentModel"]) -> type["RecurrentModel"]:
        ARCHITECTURES[name] = model
        return register_model(name, dataclass=config)(model)

    return register


class DecodingState(NamedTuple):
    """What fairseq's incremental state holds for us between two calls."""

    decoder: DecoderState  # one row a hypothesis
    words: int  # target words read so far


class SentenceMemory(NamedTuple):
    """The sources as the decoder sees them. Every tensor has one row a sentence, also in beam search."""

    memory: Any  # of RecurrentDecoder.begin
    state: DecoderState  # before the first target word
    given_positions: Tensor  # B x S: where each position of src_tokens as given stands in the right-padded order


class ZooEncoder(FairseqEncoder):
    """Embeds and encodes sources, and makes the memory that attention reads, once a sentence."""

    def __init__(
        self,
        dictionary,
        embed_tokens: nn.Embedding,
        network: RecurrentEncoder | TwoStackEncoder,
        decoder: RecurrentDecoder,
        dropout_in: float,
        max_source_positions: int,
    ) -> None:
        super().__init__(dictionary)
        self.embed_tokens = embed_tokens
        self.network = network
        self.begin = decoder.begin  # a bound method: the decoder's parameters stay the decoder's
        self.dropout_in = Dropout(dropout_in)
        self.max_source_positions = max_source_positions

    def forward(self, src_tokens: Tensor, src_lengths: Tensor | None = None, **unused) -> dict[str, Any]:
        """Encode.

        Args:
            src_tokens: B x S, padded on the left, on the right or on both sides, sentences in any order of length
            src_lengths: not read; the lengths are taken from the padding

        Returns:
            ``sentences``, a :class:`SentenceMemory` of B rows, and ``owners``, which of them each hypothesis reads

        Raises:
            ValueError: if S is larger than ``max_source_positions``
        """
        if src_tokens.size(1) > self.max_source_positions:
            raise ValueError(
                f"a source of {src_tokens.size(1)} tokens is longer than the model's maximum of "
                f"{self.max_source_positions}; split it, or raise --max-source-positions (and "
                "max_source_positions in --model-overrides for a trained model)"
            )
        padding = src_tokens.eq(self.dictionary.pad())
        width = src_tokens.size(1)
        left_padding = padding.long().cumprod(dim=1).sum(dim=1, keepdim=True)  # B x 1
        positions = torch.arange(width, device=src_tokens.device)  # S
        right_padded = (positions + left_padding) % width  # B x S: where the word at each position was given
        padding = padding.gather(1, right_padded)
        embedded = self.dropout_in(self.embed_tokens(src_tokens.gather(1, right_padded)))
        memory, state = self.begin(self.network(embedded, padding), padding)
        return {
            "sentences": SentenceMemory(memory, state, (positions - left_padding) % width),
            "owners": torch.arange(src_tokens.size(0), device=src_tokens.device),
        }

    def reorder_encoder_out(self, encoder_out: dict[str, Any], new_order: Tensor) -> dict[str, Any]:
        """Follow the beam search: hypothesis n of the new order is hypothesis ``new_order[n]`` of the old.

        The hypotheses of one sentence stand side by side, equally many for each, so that no memory is ever copied for a
        hypothesis. Starting a beam, and permuting hypotheses within their sentences, touch no tensor; finished
        sentences lose their rows.
        """
        memory, owners = encoder_out["sentences"], encoder_out["owners"]
        sentences = owners[new_order]
        if torch.equal(sentences, owners):  # what most steps of a beam ask for
            return encoder_out
        rows, counts = sentences.unique_consecutive(return_counts=True)
        if counts.numel() and (counts != counts[0]).any():  # not a beam's order: one row a hypothesis then
            rows, counts = sentences, torch.ones_like(sentences)
        if not torch.equal(rows, torch.arange(memory.given_positions.size(0), device=rows.device)):
            memory = map_tensors(lambda tensor: tensor.index_select(0, rows), memory)
        owners = torch.arange(rows.size(0), device=rows.device).repeat_interleave(counts)
        return {"sentences": memory, "owners": owners}

    def max_positions(self) -> int:
        """Longest source in tokens, the final end-of-sentence included."""
        return self.max_source_positions


class ZooDecoder(FairseqIncrementalDecoder):
    """Embeds target words, runs the decoder network, and projects its features to the vocabulary.

    ``embed_tokens`` is None for a network that reads the words' ids only.
    """

    def __init__(
        self,
        dictionary,
        embed_tokens: nn.Embedding | None,
        network: RecurrentDecoder,
        output_projection: nn.Linear,
        dropout_in: float,
        max_target_positions: int,
        need_attn_in_training: bool,
        compile_step: bool,
    ) -> None:
        super().__init__(dictionary)
        self.embed_tokens = embed_tokens
        self.network = network
        self.output_projection = output_projection
        self.dropout_in = Dropout(dropout_in)
        self.max_target_positions = max_target_positions
        self.need_attn = True
        self.need_attn_in_training = need_attn_in_training
        self.compile_step = compile_step

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, Any],
        incremental_state: dict[str, Any] | None = None,
        features_only: bool = False,
        need_trace: bool = False,
        **unused,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Predict the word after each target word.

        Args:
            prev_output_tokens: N x T, the target so far, from the beginning of the sentence on
            encoder_out: of :class:`ZooEncoder`, for N = B x hypotheses of each sentence
            incremental_state: of fairseq's generator. With it only the words that were not read in earlier calls are
                read, and only their predictions are returned: all T in the first call, one in each later call.
            features_only: return what the output layer reads instead of logits
            need_trace: return every weight of the mechanism too

        Returns:
            logits, N x T x vocabulary, and ``{"attn": [weights]}``, weights N x T x S in the order of ``src_tokens``,
            or ``[None]`` when nobody reads them (see ``need_attn``) or the architecture has no attention. With
            ``need_trace`` also ``"trace"``, by name (see :meth:`fairseq_attn_zoo.attention.AttentionMechanism.trace`),
            source positions in the order of ``src_tokens``.
        """
        times = self.times_the_same(prev_output_tokens, encoder_out, incremental_state)
        features, extra = self.extract_features(prev_output_tokens[::times], encoder_out, incremental_state, need_trace)
        output = features if features_only else self.output_layer(features)
        if times > 1:
            past = self.get_incremental_state(incremental_state, "past")
            self.set_incremental_state(incremental_state, "past", repeat_rows(past, times))
            output, extra = repeat_rows(output, times), repeat_rows(extra, times)
        return output, extra

    def times_the_same(
        self, prev_output_tokens: Tensor, encoder_out: dict[str, Any], incremental_state: dict[str, Any] | None
    ) -> int:
        """How many hypotheses of each sentence one row can stand for: all at the start of a beam, else one."""
        # In training each has its own dropout.
        if (
            self.training
            or incremental_state is None
            or self.get_incremental_state(incremental_state, "past") is not None
        ):
            return 1
        hypotheses = prev_output_tokens.size(0) // encoder_out["sentences"].given_positions.size(0)
        first = prev_output_tokens[::hypotheses]
        return hypotheses if torch.equal(repeat_rows(first, hypotheses), prev_output_tokens) else 1

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, Any],
        incremental_state: dict[str, Any] | None = None,
        need_trace: bool = False,
        **unused,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Like :meth:`forward`, but returns what the output layer reads, N x T x F."""
        sentences, past = encoder_out["sentences"], None
        if incremental_state is not None:
            past = self.get_incremental_state(incremental_state, "past")
        if past is None:
            past = self.start(sentences, prev_output_tokens.size(0) // sentences.given_positions.size(0))
        features, extra, past = self.read(prev_output_tokens[:, past.words :], sentences, past, need_trace)
        if incremental_state is not None:
            self.set_incremental_state(incremental_state, "past", past)
        return features, extra

    def start(self, sentences: SentenceMemory, hypotheses: int = 1) -> DecodingState:
        """The state before the first word, with so many hypotheses of each sentence."""
        return DecodingState(repeat_rows(sentences.state, hypotheses), words=0)

    def read(
        self, new_words: Tensor, sentences: SentenceMemory, past: DecodingState, need_trace: bool = False
    ) -> tuple[Tensor, dict[str, Any], DecodingState]:
        """Read words that follow those of ``past``.

        Args:
            new_words: N x T, for N = B x hypotheses of each sentence, which stand side by side
            sentences: of :class:`ZooEncoder`, B rows
            past: before the first of these words, N rows
            need_trace: as in :meth:`forward`

        Returns:
            what the output layer reads, N x T x F; the ``extra`` of :meth:`forward`; the state after the last word
        """
        hypotheses = new_words.size(0) // sentences.given_positions.size(0)
        embedded = None if self.embed_tokens is None else self.dropout_in(self.embed_tokens(new_words))
        need_weights = self.need_attn_in_training if self.training else self.need_attn
        one_more_word = past.words > 0 and new_words.size(1) == 1 and not self.training
        read = compiled_step if self.compile_step and one_more_word else RecurrentDecoder.__call__
        words = TargetWords(new_words.contiguous(), embedded)
        output = read(self.network, words, sentences.memory, past.decoder, need_weights, need_trace)

        extra: dict[str, Any] = {"attn": [None]}
        if output.weights is not None:
            extra["attn"] = [as_given(output.weights, repeat_rows(sentences.given_positions, hypotheses))]
        if output.trace is not None:
            given_positions = repeat_rows(sentences.given_positions, hypotheses)
            extra["trace"] = {
                name: as_given(trace, given_positions) if name.startswith("source") else trace
                for name, trace in output.trace.items()
            }
        return output.features, extra, DecodingState(output.state, past.words + new_words.size(1))

    def output_layer(self, features: Tensor, **unused) -> Tensor:
        """Features N x T x F as logits N x T x vocabulary."""
        return self.output_projection(features)

    def reorder_incremental_state(self, incremental_state: dict[str, Any], new_order: Tensor) -> None:
        """Follow the beam search, as :meth:`ZooEncoder.reorder_encoder_out` does for the memory."""
        past = self.get_incremental_state(incremental_state, "past")
        if past is not None:
            reordered = map_tensors(lambda tensor: tensor.index_select(0, new_order), past.decoder)
            self.set_incremental_state(incremental_state, "past", past._replace(decoder=reordered))

    def max_positions(self) -> int:
        """Longest target in tokens, the final end-of-sentence included."""
        return self.max_target_positions

    def make_generation_fast_(self, need_attn: Any = False, **unused) -> None:
        """fairseq's word that the model will only translate now, and whether anyone will read the weights.

        Raises:
            ValueError: if someone will and the architecture has none
        """
        if need_attn and not self.network.has_attention:
            raise ValueError("this architecture has no attention to align words with; leave --print-alignment out")
        self.need_attn = bool(need_attn)


def as_given(weights: Tensor, given_positions: Tensor) -> Tensor:
    """Weights N x T x S x ... of right-padded sources in the order of the sources as they were given, N x S."""
    index = given_positions.view(given_positions.size(0), 1, -1, *[1] * (weights.dim() - 3))
    return weights.gather(2, index.expand_as(weights))


def repeat_rows(value: Any, times: int) -> Any:
    """Repeat every row of every tensor ``times`` times, side by side."""
    if times == 1:
        return value
    return map_tensors(lambda tensor: tensor.repeat_interleave(times, dim=0), value)


class RecurrentModel(FairseqEncoderDecoderModel):
    """A recurrent encoder-decoder; an architecture says only how its two networks are built from its config."""

    has_attention = True
    # Whether the encoder's two directions, side by side, must be as wide as the decoder.
    joins_directions = False
    # Sizes that must be even -> why.
    even_sizes: dict[str, str] = {}

    @classmethod
    def build_networks(
        cls, config, target_vocabulary: int
    ) -> tuple[RecurrentEncoder | TwoStackEncoder, RecurrentDecoder]:
        """The torch-only encoder and decoder of this architecture.

        Args:
            config: of the architecture
            target_vocabulary: number of target types, for a network with embeddings of its own

        Raises:
            ValueError: if sizes that must agree do not, in one line that names both
        """
        raise NotImplementedError

    @classmethod
    def initialize_embedding(cls, weight: Tensor) -> None:
        """Fill an embedding or output matrix as the paper does."""
        raise NotImplementedError

    @classmethod
    def has_output_bias(cls, config) -> bool:
        """Whether the output layer has a bias: where the paper prints one."""
        return False

    @classmethod
    def starts_layer_by_layer(cls, config) -> bool:
        """Whether each layer of the decoder starts from a layer of the encoder, so that they must be equally many."""
        return True

    @classmethod
    def embeds_target(cls, config) -> bool:
        """Whether the decoder network reads embedded target words.

        Raises:
            ValueError: if it does not and a flag asks for something of their embedding
        """
        return True

    @classmethod
    def build_model(cls, cfg, task) -> "RecurrentModel":
        """Build the model.

        Raises:
            ValueError: if a flag is out of range or two sizes do not fit together
        """
        check_ranges(cfg)
        for name, reason in cls.even_sizes.items():
            if cfg[name] % 2:
                raise ValueError(f"{flag(name)} is {cfg[name]}, which is odd; make it even: {reason}")
        if cls.starts_layer_by_layer(cfg) and cfg.encoder_layers != cfg.decoder_layers:
            raise ValueError(
                f"--encoder-layers ({cfg.encoder_layers}) and --decoder-layers ({cfg.decoder_layers}) must be equal: "
                "each layer of the decoder starts from a layer of the encoder"
            )
        if cls.joins_directions and 2 * cfg.encoder_hidden_size != cfg.decoder_hidden_size:
            raise ValueError(
                f"--encoder-hidden-size ({cfg.encoder_hidden_size}, one direction) must be half of "
                f"--decoder-hidden-size ({cfg.decoder_hidden_size}): the decoder's states and the encoder's two "
                "directions side by side must be equally wide"
            )
        if getattr(task.cfg, "left_pad_target", False):
            raise ValueError("--left-pad-target is not for recurrent decoders; leave it out")
        encoder_network, decoder_network = cls.build_networks(cfg, len(task.target_dictionary))
        source, target, output = cls.build_embeddings(cfg, task, decoder_network.output_size)
        encoder = ZooEncoder(
            task.source_dictionary,
            source,
            encoder_network,
            decoder_network,
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
        return cls(encoder, decoder)

    @classmethod
    def build_embeddings(cls, cfg, task, output_size: int) -> tuple[nn.Embedding, nn.Embedding | None, nn.Linear]:
        """Source and target embeddings and the output layer, shared as the flags say."""
        source_dictionary, target_dictionary = task.source_dictionary, task.target_dictionary
        embeds_target = cls.embeds_target(cfg)
        if cfg.share_all_embeddings:
            if source_dictionary != target_dictionary:
                raise ValueError(
                    "--share-all-embeddings needs one dictionary for both languages; "
                    "run fairseq-preprocess with --joined-dictionary"
                )
            if cfg.encoder_embed_dim != cfg.decoder_embed_dim:
                raise ValueError(
                    f"--share-all-embeddings needs --encoder-embed-dim ({cfg.encoder_embed_dim}) and "
                    f"--decoder-embed-dim ({cfg.decoder_embed_dim}) to be equal"
                )
            if cfg.decoder_embed_path not in (None, cfg.encoder_embed_path):
                raise ValueError("--share-all-embeddings reads --encoder-embed-path; leave --decoder-embed-path out")
        share_output = cfg.share_all_embeddings or cfg.share_decoder_input_output_embed
        if share_output and cfg.decoder_embed_dim != output_size:
            raise ValueError(
                f"sharing the target embeddings with the output layer needs --decoder-embed-dim "
                f"({cfg.decoder_embed_dim}) to equal the width of the features it reads ({output_size})"
            )

        source = cls.build_embedding(source_dictionary, cfg.encoder_embed_dim, cfg.encoder_embed_path)
        source.weight.requires_grad = not cfg.encoder_freeze_embed
        if not embeds_target:
            target = None
        elif cfg.share_all_embeddings:
            target = source
        else:
            target = cls.build_embedding(target_dictionary, cfg.decoder_embed_dim, cfg.decoder_embed_path)
        if target is not None and cfg.decoder_freeze_embed:
            target.weight.requires_grad = False
        output = nn.Linear(output_size, len(target_dictionary), bias=cls.has_output_bias(cfg))
        if share_output:
            assert target is not None  # an architecture without target embeddings refuses the flags that share them
            output.weight = target.weight
        else:
            cls.initialize_embedding(output.weight.data)
        if output.bias is not None:
            nn.init.zeros_(output.bias)
        return source, target, output

    @classmethod
    def build_embedding(cls, dictionary, width: int, path: str | None) -> nn.Embedding:
        """An embedding matrix, its known words read from ``path`` if there is one; padding is zero.

        Raises:
            ValueError: if the file is not one of embeddings, or of another width
        """
        embedding = nn.Embedding(len(dictionary), width, padding_idx=dictionary.pad())
        cls.initialize_embedding(embedding.weight.data)
        nn.init.zeros_(embedding.weight[dictionary.pad()])
        if path:
            try:
                pretrained = utils.parse_embedding(path)
            except (OSError, ValueError, StopIteration) as error:
                raise ValueError(
                    f"{path} cannot be read as embeddings ({type(error).__name__}: {error}); it wants a first line with "
                    "its numbers of words and values, then a word and its values a line"
                ) from None
            for word, values in pretrained.items():
                if len(values) != width:
                    raise ValueError(
                        f"{path} has {len(values)} values for {word!r}, but the embeddings here are {width} wide; "
                        "make --encoder-embed-dim or --decoder-embed-dim equal to the file's width"
                    )
            utils.print_embed_overlap(pretrained, dictionary)
            utils.load_embedding(pretrained, dictionary, embedding)
        return embedding

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
