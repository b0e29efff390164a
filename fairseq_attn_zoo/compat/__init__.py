"""What today's Python and PyTorch need of fairseq 0.12: each patch with its reason, nothing more."""

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
)


def apply() -> None:
    """Apply every patch, once."""
    for patch in PATCHES:
        patch()
