"""The step of beam search through ``torch.compile``, for those who ask for it.

Only the step: a reference is read in one call, whose loop would be unrolled word by word, and for each length anew. In what
is compiled the numbers of words, sentences and hypotheses are symbols, so that a shrinking beam does not compile it again.
"""

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch

from .base import DecoderOutput, RecurrentDecoder

BACKEND = "inductor"  # torch.compile's own default

logger = logging.getLogger(__name__)
cannot_compile: set[type[RecurrentDecoder]] = set()


def compiled_step(decoder: RecurrentDecoder, *arguments: Any) -> DecoderOutput:
    """:meth:`RecurrentDecoder.forward`, compiled when it is first called, which takes from ten seconds to minutes.

    Equal to the decoder to rounding. Where compiling is impossible (no C++ compiler; on a GPU no Triton), a warning says
    so once and the decoder runs as it is.
    """
    if type(decoder) not in cannot_compile:
        try:
            return compiled(type(decoder).forward, BACKEND)(decoder, *arguments)
        except torch._dynamo.exc.TorchDynamoException as error:
            cannot_compile.add(type(decoder))
            reason = " ".join(str(error).split())[:300]
            logger.warning(
                f"--compile-decoder is left out, because torch.compile failed; does it find a C++ compiler? ({reason})"
            )
    return decoder(*arguments)


@functools.cache
def compiled(forward: Callable[..., DecoderOutput], backend: str) -> Callable[..., DecoderOutput]:
    """A class's ``forward``, not one decoder's: a copied or pickled model holds nothing compiled."""
    logger.info("the decoder is compiled at its first words, which takes up to minutes")
    return torch.compile(forward, dynamic=True, backend=backend)
