"""How wide an architecture's encoder must be beside its decoder."""

from typing import Any, NamedTuple


class Widths(NamedTuple):
    """The relation of ``--encoder-hidden-size``, of one direction, to ``--decoder-hidden-size``."""

    directions: int | None  # so many directions side by side are as wide as the decoder; None: any width will do
    relation: str = ""
    reason: str = ""

    def encoder_beside(self, decoder: int) -> int:
        """Units of one direction of an encoder beside a decoder of so many; where any will do, as many.

        Raises:
            ValueError: if half of an odd number is wanted
        """
        if decoder % (self.directions or 1):
            raise ValueError(f"--encoder-hidden-size {self.relation} --decoder-hidden-size, but {decoder} is odd")
        return decoder // (self.directions or 1)

    def check(self, config: Any) -> None:
        """Refuse sizes that do not fit together.

        Raises:
            ValueError: one line that names both
        """
        encoder, decoder = config.encoder_hidden_size, config.decoder_hidden_size
        if self.directions is not None and self.directions * encoder != decoder:
            raise ValueError(
                f"--encoder-hidden-size ({encoder}, one direction) {self.relation} --decoder-hidden-size ({decoder}): "
                f"{self.reason}"
            )


FREE = Widths(None)
HALF = Widths(
    2,
    "must be half of",
    "the decoder's states and the encoder's two directions side by side must be equally wide",
)
EQUAL = Widths(1, "must be equal to", "the decoder starts from the states of one direction")
