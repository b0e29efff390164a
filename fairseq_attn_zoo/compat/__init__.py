"""What today's Python and PyTorch need of fairseq 0.12: each patch with its reason, nothing more.

Importing this applies them.

Raises:
    ImportError: if PyTorch is too old, or fairseq is missing or cannot be imported; one line says what to do
"""

import torch

if torch.__version__ < "2.6":
    raise ImportError(f"fairseq_attn_zoo wants PyTorch 2.6 or later; this is {torch.__version__}")

try:
    import fairseq  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "fairseq":
        raise
    raise ImportError(
        "fairseq is not installed; pip install fairseq-fixed==0.12.3.1 (takes minutes to compile)"
    ) from None
except Exception as error:
    raise ImportError(
        f"fairseq is installed but cannot be imported ({type(error).__name__}: {str(error).partition(chr(10))[0]}); "
        "fairseq_attn_zoo is tested with fairseq-fixed 0.12.3.1, hydra-core 1.3.2 and omegaconf 2.3.0: "
        "pip install them, then ask 'python -m pip check'"
    ) from None

from .checkpoints import (
    allow_checkpoint_types,
    keep_counting_bad_epochs,
    name_bad_checkpoints,
    override_newer_flags,
    save_checkpoints_whole,
)
from .data import end_lines_at_line_feeds, keep_last_batch, resume_with_the_same_batches
from .machines import let_workers_meet_without_a_gpu, let_workers_resume, refuse_fp16_without_a_gpu
from .precision import save_float32_of_bfloat16, translate_in_bfloat16, untie_bfloat16_from_tpus
from .search import search_with_our_generator
from .user_dir import know_this_package_by_every_path

PATCHES = (
    allow_checkpoint_types,
    name_bad_checkpoints,
    override_newer_flags,
    save_checkpoints_whole,
    keep_counting_bad_epochs,
    end_lines_at_line_feeds,
    keep_last_batch,
    resume_with_the_same_batches,
    let_workers_meet_without_a_gpu,
    let_workers_resume,
    refuse_fp16_without_a_gpu,
    untie_bfloat16_from_tpus,
    translate_in_bfloat16,
    save_float32_of_bfloat16,
    know_this_package_by_every_path,
    search_with_our_generator,
)


def apply() -> None:
    """Apply every patch, once."""
    for patch in PATCHES:
        patch()


apply()
