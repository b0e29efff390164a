"""``python -m fairseq_attn_zoo.grammar``: writes a corpus."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
