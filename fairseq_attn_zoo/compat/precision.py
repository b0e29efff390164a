"""bfloat16: asked for with ``--bf16`` by every command, kept out of checkpoints."""

import argparse
import ast
from types import MappingProxyType

import torch
from fairseq import checkpoint_utils, options
from fairseq.dataclass.configs import CommonConfig
from fairseq.optim import FP16Optimizer
from fairseq.trainer import Trainer

from .patching import patch


def untie_bfloat16_from_tpus() -> None:
    """Let ``--bf16`` mean bfloat16, on a CPU and on a GPU; a TPU is asked for with ``--tpu``.

    fairseq takes ``--bf16`` for ``--tpu``, and then looks for a TPU (its issue 4696). Only the parser of the command line
    does so: through hydra, and in the trainer, the two are apart.
    """

    @patch(options, "parse_args_and_arch")
    def parse_args_and_arch(original, parser, input_args=None, parse_known=False, suppress_defaults=False, **kwargs):
        given = flags_given(input_args, "tpu", "bf16", "memory_efficient_bf16", "fp16", "memory_efficient_fp16")
        if (given.bf16 or given.memory_efficient_bf16) and (given.fp16 or given.memory_efficient_fp16):
            raise ValueError("--bf16 and --fp16 are two precisions; leave one of them out")
        parsed = original(parser, input_args, parse_known, suppress_defaults, **kwargs)
        args = parsed[0] if parse_known else parsed
        if not suppress_defaults:  # else only what was given is in it
            args.tpu = given.tpu
            if args.bf16 and hasattr(args, "model_overrides"):  # of a command that reads models
                args.model_overrides = repr({**ast.literal_eval(args.model_overrides), "bf16": True})
        return parsed

    CommonConfig.__dataclass_fields__["bf16"].metadata = MappingProxyType({"help": "use bfloat16"})


def flags_given(arguments: list[str] | None, *names: str) -> argparse.Namespace:
    """Which of these switches are on the command line."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in names:
        parser.add_argument("--" + name.replace("_", "-"), action="store_true")
    return parser.parse_known_args(arguments)[0]


def translate_in_bfloat16() -> None:
    """Load models in bfloat16 where the override ``bf16`` asks for it; what they were trained in does not count.

    fairseq's commands know half precision only as ``--fp16``. The override comes from ``--bf16`` of
    ``fairseq-generate``, ``-interactive`` and ``-validate``, from ``from_pretrained(..., bf16=True)`` and from
    :meth:`fairseq_attn_zoo.inspect.translator.Translator.load`. Logarithms of probabilities, and the scores that are summed
    of them, are in float32 all the same: fairseq's softmax is.
    """

    @patch(checkpoint_utils, "load_model_ensemble_and_task")
    def load_model_ensemble_and_task(original, filenames, arg_overrides=None, *args, **kwargs):
        models, cfg, task = original(filenames, arg_overrides, *args, **kwargs)
        if (arg_overrides or {}).get("bf16"):
            models = [model.to(torch.bfloat16) for model in models]
        return models, cfg, task


def save_float32_of_bfloat16() -> None:
    """Save, and go on from, the float32 parameters that a training in bfloat16 updates, not their rounded copies.

    The optimizer keeps parameters and moments in float32; the model computes with the parameters rounded to bfloat16.
    fairseq saves the rounded ones, so that a training that goes on has lost what was rounded away: it does not end like
    one that was not stopped. And it notes the optimizer under the name of its wrapper, so that a training cannot go on in
    the other precision, although the moments are the same.
    """

    @patch(Trainer, "state_dict")
    def state_dict_in_float32(original, self):
        state = original(self)
        if keeps_float32(self):
            saved = state["model"]
            saved.update({name: wide for name, wide in float32_parameters(self).items() if name in saved})
            state["optimizer_history"][-1]["optimizer_name"] = type(self.optimizer.fp32_optimizer).__name__
        return state

    @patch(Trainer, "_build_optimizer")
    def build_optimizer(original, self):
        original(self)
        if keeps_float32(self) and self._optim_history:
            last = self._optim_history[-1]
            if last["optimizer_name"] == type(self.optimizer.fp32_optimizer).__name__:
                last["optimizer_name"] = type(self.optimizer).__name__  # which fairseq compares it with

    @patch(Trainer, "load_checkpoint")
    def load_checkpoint(original, self, *args, **kwargs):
        read = {}
        hook = self.get_model().register_load_state_dict_pre_hook(lambda model, state, *_: read.update(state))
        try:
            extra_state = original(self, *args, **kwargs)
        finally:
            hook.remove()
        if read and self.cfg.common.bf16 and keeps_float32(self):
            for name, wide in float32_parameters(self).items():
                if name in read:
                    wide.copy_(read[name])
        return extra_state

    @patch(FP16Optimizer, "load_state_dict")
    def load_state_dict(original, self, state, optimizer_overrides=None):
        if self.scaler is None and "loss_scale" in state:
            raise ValueError(
                "the checkpoint's optimizer is one of --fp16, which --bf16 cannot go on from; go on with --fp16, or start "
                "the optimizer afresh from its parameters with --reset-optimizer"
            )
        return original(self, state, optimizer_overrides)


def keeps_float32(trainer: Trainer) -> bool:
    """Whether this training updates float32 parameters and computes with copies in bfloat16."""
    # Not so in --memory-efficient-bf16, which has none.
    return trainer.cfg.common.bf16 and isinstance(trainer.optimizer, FP16Optimizer)


def float32_parameters(trainer: Trainer) -> dict[str, torch.Tensor]:
    """The parameters that the optimizer updates, by all their names in the model."""
    wide = dict(zip(map(id, trainer.optimizer.fp16_params), trainer.optimizer.fp32_params, strict=True))
    named = trainer.get_model().named_parameters(remove_duplicate=False)
    return {name: wide[id(parameter)].data for name, parameter in named if id(parameter) in wide}
