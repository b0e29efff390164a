#!/usr/bin/env bash
# The recipe of this folder: DATA=FOLDER [SMALL=1] run.sh [further options of examples/reproduce, e.g. --seeds 1 2 3]
paper=watanabe2017
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=examples/paper.sh
. "$here/../paper.sh"
