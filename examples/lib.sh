# What the recipes share; sourced by their run.sh, which sets `recipe` (its name, for messages) and `here` (its folder).
# shellcheck shell=bash disable=SC2034,SC2154

set -euo pipefail
root=$(cd "$here/../.." && pwd)
package=$root/fairseq_attn_zoo
[ -z "${VIRTUAL_ENV:-}" ] && [ -x "$root/.venv/bin/python" ] && PATH="$root/.venv/bin:$PATH"

fail() { echo "$recipe: $1" >&2; exit 1; }

# step NAME LOG COMMAND...: run a command with its output in LOG; one clear line when it fails
step() {
    local name=$1 log=$2
    shift 2
    echo "$recipe: $name"
    mkdir -p "$(dirname "$log")"
    "$@" >"$log" 2>&1 || fail "$name failed; the reason is at the end of $log"
}

need_commands() {
    local name
    for name in "$@"; do
        command -v "$name" >/dev/null || fail "$name is not on the path; run 'make install' in $root first"
    done
}

# model_folder PARENT BUDGET: the folder of a model, named by all that makes it
model_folder() {
    printf %s "$1/$ARCH-$SIZE-lr$LR-dropout$DROPOUT-$2x$MAX_TOKENS-seed$SEED$(printf %s "$FLAGS" | tr -s ' /' '__')"
}

# train_model DATA MODEL FLAGS...: train, or go on where the last epoch ended; the checkpoint with the best greedy
# development BLEU is kept. How long, and what becomes of the learning rate, is among the FLAGS.
train_model() {
    local data=$1 model=$2 sizes
    shift 2
    mkdir -p "$model"
    sizes=$(PYTHONPATH=$root python -m fairseq_attn_zoo.models.sizes "$ARCH" "$SIZE" 2>"$model/sizes.log") ||
        fail "$(tail -n 1 "$model/sizes.log")"
    echo "$recipe: fairseq-train $ARCH ($model/train.log)"
    # shellcheck disable=SC2086  # the flags are lists of words
    fairseq-train "$data" --user-dir "$package" --source-lang "$SOURCE" --target-lang "$TARGET" \
        --arch "$ARCH" $sizes --dropout "$DROPOUT" \
        --optimizer adam --lr "$LR" --clip-norm 1.0 --criterion cross_entropy \
        --max-tokens "$MAX_TOKENS" --seed "$SEED" $device \
        --eval-bleu --eval-bleu-args '{"beam": 1}' \
        --best-checkpoint-metric bleu --maximize-best-checkpoint-metric --no-epoch-checkpoints \
        --save-dir "$model" --log-file "$model/train.log" "$@" $FLAGS ||
        fail "fairseq-train failed; its last lines are above and in $model/train.log"
}

# translate DATA MODEL FLAGS...: translate the test set; the D- lines in order, in MODEL/test.$TARGET
translate() {
    local data=$1 model=$2
    shift 2
    # shellcheck disable=SC2086
    step "fairseq-generate (beam $BEAM)" "$model/generate.txt" \
        fairseq-generate "$data" --user-dir "$package" --source-lang "$SOURCE" --target-lang "$TARGET" \
        --path "$model/checkpoint_best.pt" --beam "$BEAM" --batch-size 64 $device "$@"
    grep '^D-' "$model/generate.txt" | sort -V | cut -f3 >"$model/test.$TARGET" ||
        fail "fairseq-generate translated nothing; see $model/generate.txt"
}

# score REFERENCE MODEL FLAGS...: sacreBLEU of the translations; also in MODEL/scores.json
score() {
    local reference=$1 model=$2
    shift 2
    [ "$(wc -l <"$model/test.$TARGET")" -eq "$(wc -l <"$reference")" ] ||
        fail "$model/test.$TARGET has not as many lines as the test set; see $model/generate.txt"
    sacrebleu "$reference" -i "$model/test.$TARGET" --metrics bleu chrf --width 2 "$@" | tee "$model/scores.json" ||
        fail "sacrebleu failed"
}

# the flag that keeps fairseq from looking for a GPU, where there is none
device_flag() { python -c 'import torch; print("" if torch.cuda.is_available() else "--cpu")'; }
