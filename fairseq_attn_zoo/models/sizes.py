"""Flags that make every layer of an architecture equally wide, to compare architectures or to fit a small machine.

python -m fairseq_attn_zoo.models.sizes lstm_luong_attention 256
"""

import argparse
import sys

from fairseq.models import MODEL_DATACLASS_REGISTRY

from .base import ARCHITECTURES

WIDTHS = ("_embed_dim", "_hidden_size", "_maxout_size", "attention_dim")


def size_flags(architecture: str, width: int) -> list[str]:
    """The flags of ``fairseq-train``.

    Args:
        architecture: of this package, or fairseq's own ``lstm``, which gets a bidirectional encoder
        width: of embeddings and layers, and of each direction of the encoder. Where both directions together must be
            as wide as the decoder, a direction has half of it.

    Raises:
        ValueError: if there is no such architecture, or if half of an odd width is wanted
    """
    if architecture == "lstm":
        names = ["encoder_embed_dim", "encoder_hidden_size", "decoder_embed_dim", "decoder_hidden_size"]
        sizes = dict.fromkeys([*names, "decoder_out_embed_dim"], width)
        return ["--encoder-bidirectional", *as_flags(sizes)]
    if architecture not in ARCHITECTURES:
        raise ValueError(f"no architecture {architecture!r}; there are {', '.join(sorted(ARCHITECTURES))}")
    fields = MODEL_DATACLASS_REGISTRY[architecture].__dataclass_fields__
    sizes = {name: width for name in fields if name.endswith(WIDTHS)}
    if ARCHITECTURES[architecture].joins_directions:
        if width % 2:
            raise ValueError(f"{architecture} gives half the width to a direction of its encoder, but {width} is odd")
        sizes["encoder_hidden_size"] = width // 2
    return as_flags(sizes)


def as_flags(sizes: dict[str, int]) -> list[str]:
    return [part for name, size in sizes.items() for part in ("--" + name.replace("_", "-"), str(size))]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_attn_zoo.models.sizes", description=__doc__.splitlines()[0]
    )
    parser.add_argument("architecture", help="of this package, or fairseq's own lstm")
    parser.add_argument("width", type=int)
    arguments = parser.parse_args()
    try:
        print(*size_flags(arguments.architecture, arguments.width))
    except ValueError as error:
        sys.exit(f"sizes: {error}")


if __name__ == "__main__":
    main()
