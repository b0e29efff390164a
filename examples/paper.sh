# What the papers' run.sh do, sourced by them: they set `paper` and `here`.
# shellcheck shell=bash disable=SC2154

set -euo pipefail
root=$(cd "$here/../.." && pwd)
[ -z "${VIRTUAL_ENV:-}" ] && [ -x "$root/.venv/bin/python" ] && PATH="$root/.venv/bin:$PATH"
[ -n "${DATA:-}" ] || { echo "$paper: set DATA to the folder of a tokenised parallel corpus; README.md says which" >&2; exit 1; }
exec python "$root/examples/reproduce" "$paper" --data "$DATA" ${SMALL:+--small} "$@"
