"""fairseq's import without what only its other tasks call."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
import fairseq_attn_zoo
import fairseq
assert not {"sklearn", "sklearn.metrics", "scipy.stats"} & set(sys.modules), "imported, or still standing in"
from fairseq.criterions.sentence_prediction import acc_and_f1, pearson_and_spearman
from fairseq.tasks.audio_classification import sklearn_metrics
import numpy as np
ones, noise = np.array([1, 0, 1, 1]), np.array([1, 0, 0, 1])
assert acc_and_f1(noise, ones)["f1"] == 0.8
assert pearson_and_spearman(ones, ones)["corr"] > 0.99
assert sklearn_metrics.roc_curve(ones, noise)[0][-1] == 1
import sklearn.metrics, scipy.stats
assert sklearn.metrics.f1_score(ones, noise) == 0.8 and scipy.stats.pearsonr(ones, ones)[0] > 0.99
print("fine")
"""


def test_what_was_deferred_works_when_it_is_called():
    """In fairseq's own modules, which took functions of it, and for whoever imports it later."""
    root = Path(__file__).resolve().parents[1]
    ran = subprocess.run([sys.executable, "-c", PROGRAM], cwd=root, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "fine\n"
