"""``python -m fairseq_attn_zoo``: the same as the command ``fairseq-attn-zoo``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
