"""Every variant of every architecture under PyTorch's DistributedDataParallel, as torchrun starts it: one process of several.

Prints, in the first process, a JSON object: name of the variant -> largest difference of a parameter after some updates
from those of one process that reads whole batches.
"""

import json

import torch
from torch.nn.parallel import DistributedDataParallel
from zoo import pad_batch, random_batch, teacher_forced, tiny_model, variant_name, variants

UPDATES = 3


def batches(rank: int | None, size: int) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Of every batch of six sentences the part of one process, or all of it. The first one's targets are all empty."""
    found = []
    for update in range(UPDATES):
        sources = random_batch([5, 1, 7, 3, 2, 4], seed=update)
        targets = random_batch([1, 1, 1, 4, 2, 3] if update == 0 else [2, 4, 1, 3, 5, 2], seed=update + 50)
        half = len(sources) // size
        mine = slice(None) if rank is None else slice(rank * half, (rank + 1) * half)
        sources, targets = sources[mine], targets[mine]
        found.append((pad_batch(sources, left=True), pad_batch(teacher_forced(targets)), pad_batch(targets)))
    return found


def train(model: torch.nn.Module, parts: list, scale: float) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for sources, given, targets in parts:
        logits, _ = model(sources, None, given)
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=1, reduction="sum"
        )
        optimizer.zero_grad()
        (loss * scale).backward()
        optimizer.step()


def main() -> None:
    torch.distributed.init_process_group("gloo")
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    differences = {}
    for name, flags in variants():
        model = tiny_model(name, **flags).train()
        train(DistributedDataParallel(model), batches(rank, size), scale=size)  # which averages gradients
        if rank == 0:
            alone = tiny_model(name, **flags).train()
            train(alone, batches(None, size), scale=1)
            pairs = zip(model.parameters(), alone.parameters(), strict=True)
            differences[variant_name((name, flags))] = max((got - want).abs().max().item() for got, want in pairs)
    if rank == 0:
        print(json.dumps(differences))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
