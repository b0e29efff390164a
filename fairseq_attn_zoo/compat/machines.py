"""Machines: several processes without a GPU, and what wants one."""

import functools
import os

import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.models import distributed_fairseq_model
from fairseq.optim import FP16Optimizer
from omegaconf import open_dict


def let_workers_meet_without_a_gpu() -> None:
    """Let ``torchrun`` train with several processes on a machine without a GPU.

    fairseq finds a process's GPU by dividing by their number, and hands PyTorch a GPU for a model that is on the CPU;
    and with one process expected it would let each of them train alone, into the same folder.
    """
    if hasattr(distributed_utils.infer_init_method, "meets_without_a_gpu"):
        return
    infer, parallel = distributed_utils.infer_init_method, distributed_fairseq_model.DistributedDataParallel

    @functools.wraps(infer)
    def infer_init_method(cfg, force_distributed=False):
        launched = all(name in os.environ for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"))
        if not launched or torch.cuda.device_count() or cfg.distributed_init_method is not None:
            return infer(cfg, force_distributed)
        with open_dict(cfg):
            cfg.distributed_init_method = "env://"
            cfg.distributed_backend = "gloo"
            cfg.distributed_world_size = int(os.environ["WORLD_SIZE"])
            cfg.distributed_rank = int(os.environ["RANK"])
            cfg.device_id = 0
            cfg.distributed_no_spawn = True  # torchrun made the processes

    @functools.wraps(parallel)
    def distributed_data_parallel(module, device_ids=None, output_device=None, **kwargs):
        if all(parameter.device.type == "cpu" for parameter in module.parameters()):
            device_ids = output_device = None
        return parallel(module, device_ids=device_ids, output_device=output_device, **kwargs)

    infer_init_method.meets_without_a_gpu = True
    distributed_utils.infer_init_method = infer_init_method
    distributed_fairseq_model.DistributedDataParallel = distributed_data_parallel


def let_workers_resume() -> None:
    """Let several processes go on from a checkpoint.

    The first reads it and sends it to the others, who unpack it with ``torch.load``; since PyTorch 2.6 that refuses the
    configuration in it. What a process of the same run sends needs no such check.
    """

    def broadcast_object(obj, src_rank, group, dist_device):
        objects = [obj]
        torch.distributed.broadcast_object_list(objects, src=src_rank, group=group, device=dist_device)
        return objects[0]

    distributed_utils._broadcast_object_slow = broadcast_object


def refuse_fp16_without_a_gpu() -> None:
    """Say in one line that ``--fp16`` wants a GPU; fairseq says that PyTorch has no CUDA, or trains without a word."""
    if hasattr(FP16Optimizer.build_optimizer, "wants_a_gpu"):
        return
    original = FP16Optimizer.build_optimizer

    @functools.wraps(original)
    def build_optimizer(cls, cfg, params, **kwargs):
        if cfg.common.fp16 and (cfg.common.cpu or not torch.cuda.is_available()):
            raise ValueError("--fp16 wants a GPU; leave it out, or train in bfloat16 with --bf16")
        return original(cfg, params, **kwargs)

    build_optimizer.wants_a_gpu = True
    FP16Optimizer.build_optimizer = classmethod(build_optimizer)
