r"""The CKY chart of a sentence: a vector for every span of words, made of its best split. PyTorch alone.

Watanabe, Tamura and Ninomiya (2017), CKY-based convolutional attention for neural machine translation, Section 3:

.. math::
    \mathrm{DU}(l, r) = \mathrm{CNN3}(f(\mathrm{CNN2}(f(\mathrm{CNN1}\,l), f(\mathrm{CNN1}\,r)))) + \mathrm{CNN4}(l, r)
    \qquad f = \mathrm{ReLU} \\
    h_{1,j} = h_j \qquad h_{i,j} = \text{the } \mathrm{DU}(h_{k,j}, h_{i-k,j+k}),\ 1 \le k < i,
    \text{ whose elements sum highest} \qquad \text{Eq. 12}

CNN1 and CNN3 are 1x1 convolutions, CNN2 and CNN4 are 1x2 convolutions over (l, r): CNN2 (l, r) = A l + B r + b2, and
CNN4 (l, r) = C l + E r + b4. Of equal sums the smallest k wins.

Read plainly, these are O(S^3) deduction units whose results all wait for the backward pass. The same function, exactly,
needs O(S^2) matrix products and O(S^2 d) memory:

- Both halves of CNN2, A f(CNN1 h) and B f(CNN1 h), are computed once per *cell*, not once per pair of cells.
- Behind the last ReLU everything is linear. So the sum of a candidate's elements is
  ``sum(W3) . f(A f(CNN1 l) + B f(CNN1 r) + b2) + sum(C l) + sum(E r)`` and a constant: d/2 multiply-adds, no matrix product.
- Only the winner's vector is needed, and only the winner receives a gradient: CNN3 and CNN4 run once per cell.
- Left parts are stored by (start, length) and right parts by (end, S - length). So the two parts of all splits of all
  spans of one length are two slices.

:mod:`.cells` says where a span's cell is, :mod:`.candidates` scores the splits, :mod:`.fill` goes through the lengths,
forwards and backwards, :mod:`.units` is the module with the parameters, :mod:`.memory_check` refuses what does not fit, and
:mod:`.tree` reads the winning tree. The letters of the shapes are

    B sentences   S source positions   M = S (S + 1) / 2 cells   d values per state
    n = S - length + 1 spans of a length
"""

from .cells import Chart, first_cell, number_of_cells
from .tree import bracketed
from .units import DeductionUnits

__all__ = ["Chart", "DeductionUnits", "bracketed", "first_cell", "number_of_cells"]
