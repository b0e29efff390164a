"""The matrix work of a model, counted, and the rate at which this machine does such work."""

import statistics
import time
from collections.abc import Callable

import torch
from torch.utils.flop_counter import FlopCounterMode


def matrix_work(work: Callable[[], float]) -> float:
    """Floating-point operations in matrix products, for each unit of what ``work`` returns.

    oneDNN and cuDNN hide the products of an LSTM, and compiled code hides its own: they are off while it is counted.
    """
    formulas = {torch.ops.aten.addmm_: added_product, torch.ops.aten.mv: matrix_times_vector}
    counter = FlopCounterMode(display=False, custom_mapping=formulas)
    plain = torch.compiler.set_stance("force_eager")
    with torch.backends.mkldnn.flags(enabled=False), torch.backends.cudnn.flags(enabled=False), plain, counter:
        done = work()
    return counter.get_total_flops() / done


def added_product(added, left, right, *args, out_shape=None, **keywords) -> int:
    return 2 * left[0] * left[1] * right[1]


def matrix_times_vector(matrix, vector, *args, out_shape=None, **keywords) -> int:
    return 2 * matrix[0] * matrix[1]


def matrix_rate(device: str, repetitions: int = 15) -> float:
    """Operations a second of a product like a layer's: 4,096 rows of 512 values by a matrix of 512 x 1,024."""
    rows, weight = torch.randn(4096, 512, device=device), torch.randn(512, 1024, device=device)
    product = torch.empty(4096, 1024, device=device)
    seconds = []
    for _ in range(repetitions + 3):
        begin = time.perf_counter()
        torch.mm(rows, weight, out=product)
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return 2 * 4096 * 512 * 1024 / statistics.median(seconds[3:])
