#!/usr/bin/env bash
# Multi30k: prepare, train, translate, score, with any architecture. Settings are environment variables:
#
#   ARCH=gru_rnnsearch         architecture (also fairseq's own `lstm`)
#   FLAGS="..."                further flags of fairseq-train, e.g. FLAGS="--attention-score general"
#   DATA=                      folder with the raw files (or with raw/ in it); downloaded when empty
#   SOURCE=de TARGET=en        direction
#   SIZE=256 DROPOUT=0.4       width of embeddings and layers, and dropout
#   LR=0.002                   Adam's learning rate; halved before each epoch of the last third
#   EPOCHS=10 MAX_TOKENS=1000  budget: epochs, and tokens in a batch
#   SEED=1 BEAM=5              seed; beam on the test set (development BLEU, once an epoch, is greedy)
#   KEEP_CASE=                 set to 1 to keep upper case
#   OUT=build/multi30k         where everything is written
#
# Finished preparations and trainings are not done again; a stopped training goes on where its last epoch ended.
recipe=multi30k
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=examples/lib.sh
. "$here/../lib.sh"

ARCH=${ARCH:-gru_rnnsearch} FLAGS=${FLAGS:-} DATA=${DATA:-} SOURCE=${SOURCE:-de} TARGET=${TARGET:-en}
SIZE=${SIZE:-256} DROPOUT=${DROPOUT:-0.4} LR=${LR:-0.002} EPOCHS=${EPOCHS:-10} MAX_TOKENS=${MAX_TOKENS:-1000}
SEED=${SEED:-1} BEAM=${BEAM:-5} KEEP_CASE=${KEEP_CASE:-} OUT=${OUT:-$root/build/multi30k}
corpus=$OUT/$SOURCE-$TARGET${KEEP_CASE:+-cased}
text=$corpus/text binary=$corpus/data model=$(model_folder "$corpus" "$EPOCHS")
need_commands fairseq-train sacrebleu
device=$(device_flag)

# --- raw text -----------------------------------------------------------------------------------------------------------
if [ -n "$DATA" ]; then
    raw=$DATA
    [ -d "$DATA/raw" ] && raw=$DATA/raw
    [ -d "$raw" ] || fail "there is no folder $DATA; set DATA to the corpus, or leave it empty to download it"
else
    raw=$OUT/raw
    step "download" "$OUT/download.log" python "$here/../download.py" \
        https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw "$here/sha256" "$raw"
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

# constant for two thirds of the epochs, then halved before each
train_model "$binary" "$model" --max-epoch "$EPOCHS" \
    --lr-scheduler fixed --force-anneal $((EPOCHS * 2 / 3 + 1)) --lr-shrink 0.5 --eval-bleu-detok moses --eval-bleu-remove-bpe
translate "$binary" "$model" --tokenizer moses --bpe subword_nmt --bpe-codes "$text/codes"
echo "multi30k: $ARCH, $SOURCE-$TARGET, test 2016, translations in $model/test.$TARGET"
lowercase=(--lowercase --chrf-lowercase)
[ -n "$KEEP_CASE" ] && lowercase=()
score "$text/test.raw.$TARGET" "$model" ${lowercase[@]+"${lowercase[@]}"}
