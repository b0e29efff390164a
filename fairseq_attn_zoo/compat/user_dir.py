"""``--user-dir``: the many names of one folder."""

import functools
import logging
from pathlib import Path

from fairseq import utils

PACKAGE = Path(__file__).resolve().parents[1]
logger = logging.getLogger(__name__)


def know_this_package_by_every_path() -> None:
    """Accept ``--user-dir`` with any path to this package, symbolic links too, when it is already imported.

    fairseq compares paths letter by letter, and takes another path to the same folder for another package.
    """
    if hasattr(utils.import_user_module, "knows_this_package"):
        return
    original = utils.import_user_module

    @functools.wraps(original)
    def import_user_module(args):
        folder = getattr(args, "user_dir", None)
        if folder is not None and Path(folder).resolve() == PACKAGE:
            logger.info(f"--user-dir={folder} has already been imported.")
            return
        original(args)

    import_user_module.knows_this_package = True
    utils.import_user_module = import_user_module
