"""Tries ``--user-dir`` values, each in a fork of a process that has imported fairseq alone.

Reads a JSON list of [working folder, value, whether the package is imported before]; prints for each the name of the module
that registered ``gru_rnnsearch``, or the error.
"""

import argparse
import json
import os
import sys

from fairseq import utils
from fairseq.models import MODEL_REGISTRY


def try_form(folder: str, user_dir: str, imported: bool) -> str:
    os.chdir(folder)
    if imported:
        import fairseq_attn_zoo  # noqa: F401
    try:
        utils.import_user_module(argparse.Namespace(user_dir=user_dir))
        return MODEL_REGISTRY["gru_rnnsearch"].__module__
    except Exception as error:
        return f"{type(error).__name__}: {error}"


for form in json.load(sys.stdin):
    if os.fork() == 0:
        print(try_form(*form), flush=True)
        os._exit(0)
    os.wait()
