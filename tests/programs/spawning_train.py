"""fairseq-train whose data-loading workers are spawned, as on macOS and Windows, and not forked."""

import multiprocessing

from fairseq_cli.train import cli_main

if __name__ == "__main__":
    multiprocessing.set_start_method("spawn", force=True)
    cli_main()
