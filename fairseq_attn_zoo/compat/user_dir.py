"""``--user-dir``: the many names of one folder."""

import logging
from pathlib import Path

from fairseq import utils

from .patching import patch

PACKAGE = Path(__file__).resolve().parents[1]
logger = logging.getLogger(__name__)


def know_this_package_by_every_path() -> None:
    """Accept ``--user-dir`` with any path to this package, symbolic links too, when it is already imported.

    fairseq compares paths letter by letter, and takes another path to the same folder for another package.
    """

    @patch(utils, "import_user_module")
    def import_user_module(original, args):
        folder = getattr(args, "user_dir", None)
        if folder is not None and Path(folder).resolve() == PACKAGE:
            logger.info(f"--user-dir={folder} has already been imported.")
            return
        original(args)
