"""Machines: several processes without a GPU, and what wants one."""

import os

import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.models import distributed_fairseq_model
from fairseq.optim import FP16Optimizer
from omegaconf import open_dict

from .patching import patch


def let_workers_meet_without_a_gpu() -> None:
    """Let ``torchrun`` train with several processes on a machine without a GPU.

    fairseq finds a process's GPU by dividing by their number, and hands PyTorch a GPU for a model that is on the CPU;
    and with one process expected it would let each of them train alone, into the same folder.
    """

    @patch(distributed_utils, "infer_init_method")
    def infer_init_method(original, cfg, force_distributed=False):
        launched = all(name in os.environ for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"))
        if not launched or torch.cuda.device_count() or cfg.distributed_init_method is not None:
            return original(cfg, force_distributed)
        with open_dict(cfg):
            cfg.distributed_init_method = "env://"
            cfg.distributed_backend = "gloo"
            cfg.distributed_world_size = int(os.environ["WORLD_SIZE"])
            cfg.distributed_rank = int(os.environ["RANK"])
            cfg.device_id = 0
            cfg.distributed_no_spawn = True  # torchrun made the processes

    @patch(distributed_fairseq_model, "DistributedDataParallel")
    def distributed_data_parallel(original, module, device_ids=None, output_device=None, **kwargs):
        if all(parameter.device.type == "cpu" for parameter in module.parameters()):
            device_ids = output_device = None
        return original(module, device_ids=device_ids, output_device=output_device, **kwargs)


def let_workers_resume() -> None:
    """Let several processes go on from a checkpoint.

    The first reads it and sends it to the others, who unpack it with ``torch.load``; since PyTorch 2.6 that refuses the
    configuration in it. What a process of the same run sends needs no such check.
    """

    @patch(distributed_utils, "_broadcast_object_slow")
    def broadcast_object(original, obj, src_rank, group, dist_device):
        objects = [obj]
        torch.distributed.broadcast_object_list(objects, src=src_rank, group=group, device=dist_device)
        return objects[0]


def refuse_fp16_without_a_gpu() -> None:
    """Say in one line that ``--fp16`` wants a GPU; fairseq says that PyTorch has no CUDA, or trains without a word."""

    @patch(FP16Optimizer, "build_optimizer")
    def build_optimizer(original, cls, cfg, params, **kwargs):
        if cfg.common.fp16 and (cfg.common.cpu or not torch.cuda.is_available()):
            raise ValueError("--fp16 wants a GPU; leave it out, or train in bfloat16 with --bf16")
        return original(cls, cfg, params, **kwargs)
