#!/usr/bin/env bash
# Multi30k: prepare, train, translate, score, with any architecture. Settings are environment variables:
#
#   ARCH=gru_rnnsearch        architecture (also fairseq's own `lstm`)
#   FLAGS="..."               further flags of fairseq-train, e.g. FLAGS="--attention-score general"
#   DATA=                     folder with the raw files (or with raw/ in it); downloaded when empty
#   SOURCE=de TARGET=en       direction
#   SIZE=256                  width of embeddings and layers
#   EPOCHS=8 MAX_TOKENS=1000  budget: epochs, and tokens in a batch
#   SEED=1 BEAM=5             seed; beam on the test set (development BLEU, once an epoch, is greedy)
#   KEEP_CASE=                set to 1 to keep upper case
#   OUT=build/multi30k        where everything is written
#
# A finished step is not done again, and a stopped training goes on where its last epoch ended.
set -euo pipefail

ARCH=${ARCH:-gru_rnnsearch} FLAGS=${FLAGS:-} DATA=${DATA:-} SOURCE=${SOURCE:-de} TARGET=${TARGET:-en}
SIZE=${SIZE:-256} EPOCHS=${EPOCHS:-8} MAX_TOKENS=${MAX_TOKENS:-1000} SEED=${SEED:-1} BEAM=${BEAM:-5}
KEEP_CASE=${KEEP_CASE:-}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
package=$root/fairseq_attn_zoo
[ -z "${VIRTUAL_ENV:-}" ] && [ -x "$root/.venv/bin/python" ] && PATH="$root/.venv/bin:$PATH"
OUT=${OUT:-$root/build/multi30k}
text=$OUT/$SOURCE-$TARGET${KEEP_CASE:+-cased}/text
binary=$OUT/$SOURCE-$TARGET${KEEP_CASE:+-cased}/data
model=$OUT/$SOURCE-$TARGET${KEEP_CASE:+-cased}/$ARCH-$SIZE-seed$SEED$(printf %s "$FLAGS" | tr -s ' /' '__')

fail() { echo "multi30k: $1" >&2; exit 1; }
# step NAME LOG COMMAND...: run a command with its output in LOG; one clear line when it fails
step() {
    local name=$1 log=$2
    shift 2
    echo "multi30k: $name"
    mkdir -p "$(dirname "$log")"
    "$@" >"$log" 2>&1 || fail "$name failed; the reason is at the end of $log"
}

command -v fairseq-train >/dev/null || fail "fairseq-train is not on the path; run 'make install' in $root first"
command -v sacrebleu >/dev/null || fail "sacrebleu is not on the path; run 'make install' in $root first"

# --- raw text -----------------------------------------------------------------------------------------------------------
if [ -n "$DATA" ]; then
    raw=$DATA
    [ -d "$DATA/raw" ] && raw=$DATA/raw
    [ -d "$raw" ] || fail "there is no folder $DATA; set DATA to the corpus, or leave it empty to download it"
else
    raw=$OUT/raw
    step "download" "$OUT/download.log" python "$here/download.py" "$raw"
fi

# --- text, subwords, binary data ----------------------------------------------------------------------------------------
if [ ! -e "$binary/done" ]; then
    step "tokenise and split into subwords" "$text/prepare.log" \
        python "$here/prepare.py" "$raw" "$text" --source "$SOURCE" --target "$TARGET" ${KEEP_CASE:+--keep-case}
    rm -rf "$binary"
    step "fairseq-preprocess" "$text/preprocess.log" \
        fairseq-preprocess --source-lang "$SOURCE" --target-lang "$TARGET" --destdir "$binary" \
        --trainpref "$text/train.bpe" --validpref "$text/valid.bpe" --testpref "$text/test.bpe"
    touch "$binary/done"
fi

# --- train --------------------------------------------------------------------------------------------------------------
# Equal widths everywhere; where the two directions of the encoder must be as wide as the decoder, half a direction.
sizes="--encoder-embed-dim $SIZE --decoder-embed-dim $SIZE --encoder-hidden-size $SIZE --decoder-hidden-size $SIZE"
case $ARCH in
    gru_rnnsearch) sizes+=" --attention-dim $SIZE --decoder-maxout-size $SIZE" ;;
    gru_rnnencdec) sizes+=" --decoder-maxout-size $SIZE" ;;
    lstm_luong_attention) sizes+=" --encoder-hidden-size $((SIZE / 2)) --attention-dim $SIZE" ;;
    lstm) sizes+=" --encoder-bidirectional --decoder-out-embed-dim $SIZE" ;;
esac
device=$(python -c 'import torch; print("" if torch.cuda.is_available() else "--cpu")')
mkdir -p "$model"
echo "multi30k: fairseq-train $ARCH ($model/train.log)"
# shellcheck disable=SC2086  # the flags are lists of words
fairseq-train "$binary" --user-dir "$package" --source-lang "$SOURCE" --target-lang "$TARGET" \
    --arch "$ARCH" $sizes --dropout 0.3 \
    --optimizer adam --lr 0.001 --clip-norm 1.0 --criterion cross_entropy --max-tokens "$MAX_TOKENS" \
    --max-epoch "$EPOCHS" --seed "$SEED" $device \
    --eval-bleu --eval-bleu-args '{"beam": 1}' --eval-bleu-detok moses --eval-bleu-remove-bpe \
    --best-checkpoint-metric bleu --maximize-best-checkpoint-metric --no-epoch-checkpoints \
    --save-dir "$model" --log-file "$model/train.log" $FLAGS ||
    fail "fairseq-train failed; its last lines are above and in $model/train.log"

# --- translate and score ------------------------------------------------------------------------------------------------
step "fairseq-generate (beam $BEAM)" "$model/generate.txt" \
    fairseq-generate "$binary" --user-dir "$package" --source-lang "$SOURCE" --target-lang "$TARGET" \
    --path "$model/checkpoint_best.pt" --beam "$BEAM" --batch-size 64 $device \
    --tokenizer moses --bpe subword_nmt --bpe-codes "$text/codes"
grep '^D-' "$model/generate.txt" | sort -V | cut -f3 >"$model/test.$TARGET"
[ "$(wc -l <"$model/test.$TARGET")" -eq "$(wc -l <"$text/test.raw.$TARGET")" ] ||
    fail "$model/test.$TARGET has not as many lines as the test set; see $model/generate.txt"
lowercase="--lowercase --chrf-lowercase"
[ -n "$KEEP_CASE" ] && lowercase=
echo "multi30k: $ARCH, $SOURCE-$TARGET, test 2016, translations in $model/test.$TARGET"
# shellcheck disable=SC2086
sacrebleu "$text/test.raw.$TARGET" -i "$model/test.$TARGET" --metrics bleu chrf $lowercase --width 2 |
    tee "$model/scores.json" || fail "sacrebleu failed"
