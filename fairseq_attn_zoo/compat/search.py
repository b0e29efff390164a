"""Search: our own beam search where it does what was asked for."""

import logging
import os

from fairseq.tasks import FairseqTask

from .patching import patch

VARIABLE = "FAIRSEQ_ATTN_ZOO_SEARCH"
logger = logging.getLogger(__name__)


def search_with_our_generator() -> None:
    """Let every command of fairseq translate with our models by our beam search.

    fairseq's tasks build their generator themselves, and no flag names its class. The environment variable
    ``FAIRSEQ_ATTN_ZOO_SEARCH=fairseq`` keeps fairseq's.
    """

    @patch(FairseqTask, "build_generator")
    def build_generator(original, self, models, args, seq_gen_cls=None, extra_gen_cls_kwargs=None, *others, **more):
        if seq_gen_cls is None and not getattr(args, "score_reference", False) and ours_is_wanted(models):
            from ..search import AligningBeamSearchGenerator, BeamSearchGenerator

            seq_gen_cls = BeamSearchGenerator
            if getattr(args, "print_alignment", False):
                seq_gen_cls = AligningBeamSearchGenerator
                extra_gen_cls_kwargs = {**(extra_gen_cls_kwargs or {}), "print_alignment": args.print_alignment}
        return original(self, models, args, seq_gen_cls, extra_gen_cls_kwargs, *others, **more)


def ours_is_wanted(models: list) -> bool:
    """Whether all models are ours and nobody asked for fairseq's search.

    Raises:
        ValueError: if the environment variable says neither
    """
    from ..models.base import RecurrentModel

    wanted = os.environ.get(VARIABLE, "zoo")
    if wanted not in ("zoo", "fairseq"):
        raise ValueError(f"{VARIABLE} is {wanted!r}; it is 'zoo' (our beam search, the default) or 'fairseq'")
    if wanted == "fairseq":
        logger.info(f"fairseq's own search is used, because {VARIABLE} asks for it")
    return wanted == "zoo" and all(isinstance(model, RecurrentModel) for model in models)
