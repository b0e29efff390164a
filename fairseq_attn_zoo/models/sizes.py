"""Flags that make every layer of an architecture equally wide, to compare architectures or to fit a small machine.

python -m fairseq_attn_zoo.models.sizes lstm_luong_attention 256
python -m fairseq_attn_zoo.models.sizes lstm_luong_attention 256 --hydra
"""

import argparse
import sys
from dataclasses import fields

from .config import flag
from .registry import ARCHITECTURES


def sizes(architecture: str, width: int) -> dict[str, int]:
    """The fields that make every layer of an architecture of this package equally wide.

    Args:
        width: of embeddings and layers, and of each direction of the encoder. Where both directions together must be
            as wide as the decoder, a direction has half of it.

    Raises:
        ValueError: if there is no such architecture, or if half of an odd width is wanted
    """
    if architecture not in ARCHITECTURES:
        raise ValueError(f"no architecture {architecture!r}; there are {', '.join(sorted(ARCHITECTURES))}")
    card = ARCHITECTURES[architecture].card
    found = {item.name: width for item in fields(card.config) if "is_width" in item.metadata}
    return {**found, "encoder_hidden_size": card.widths.encoder_beside(width)}


def size_flags(architecture: str, width: int) -> list[str]:
    """The flags of ``fairseq-train`` for :func:`sizes`; or those of fairseq's own ``lstm``, with a bidirectional encoder.

    Raises:
        ValueError: as :func:`sizes`
    """
    if architecture == "lstm":
        names = ["encoder_embed_dim", "encoder_hidden_size", "decoder_embed_dim", "decoder_hidden_size"]
        return ["--encoder-bidirectional", *as_flags(dict.fromkeys([*names, "decoder_out_embed_dim"], width))]
    return as_flags(sizes(architecture, width))


def size_overrides(architecture: str, width: int) -> list[str]:
    """The same as overrides of ``fairseq-hydra-train``, for a config that names an architecture or none.

    Raises:
        ValueError: as :func:`sizes`
    """
    fixed = [f"model._name={architecture}"]
    return fixed + [f"++model.{name}={size}" for name, size in sizes(architecture, width).items()]


def as_flags(sizes: dict[str, int]) -> list[str]:
    return [part for name, size in sizes.items() for part in (flag(name), str(size))]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_attn_zoo.models.sizes", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("architecture", help="of this package, or fairseq's own lstm")
    parser.add_argument("width", type=int)
    parser.add_argument(
        "--hydra", action="store_true", help="as overrides of fairseq-hydra-train, the architecture's name included"
    )
    arguments = parser.parse_args()
    try:
        made = size_overrides if arguments.hydra else size_flags
        print(*made(arguments.architecture, arguments.width))
    except ValueError as error:
        sys.exit(f"sizes: {error}")


if __name__ == "__main__":
    main()
