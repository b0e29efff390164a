#!/usr/bin/env bash
# Tanaka corpus, English to Japanese, words as given: prepare, train, translate, score, with any architecture. Settings are
# environment variables:
#
#   ARCH=lstm_kv_attention     architecture (also fairseq's own `lstm`)
#   FLAGS="..."                further flags of fairseq-train, e.g. FLAGS="--source-hops 1 --target-hops 0"
#   DATA=                      folder with train, dev and test (.en, .ja), tokenised; downloaded when empty
#   SOURCE=en TARGET=ja        direction
#   SIZE=256 DROPOUT=0.2       width of embeddings and layers, and dropout
#   LR=0.002                   Adam's learning rate; constant for 70% of the updates, then down to a twentieth
#   UPDATES=4000               budget: batches (1,415 are an epoch)
#   MAX_TOKENS=500             tokens in a batch
#   SEED=1 BEAM=10             seed; beam on the test set (development BLEU, once an epoch, is greedy)
#   THRESHOLD=3                words seen less often than this are <unk>
#   OUT=build/tanaka           where everything is written
#
# Finished preparations and trainings are not done again; a stopped training goes on where its last epoch ended.
recipe=tanaka
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=examples/lib.sh
. "$here/../lib.sh"

ARCH=${ARCH:-lstm_kv_attention} FLAGS=${FLAGS:-} DATA=${DATA:-} SOURCE=${SOURCE:-en} TARGET=${TARGET:-ja}
SIZE=${SIZE:-256} DROPOUT=${DROPOUT:-0.2} LR=${LR:-0.002} UPDATES=${UPDATES:-4000} MAX_TOKENS=${MAX_TOKENS:-500}
SEED=${SEED:-1} BEAM=${BEAM:-10} THRESHOLD=${THRESHOLD:-3} OUT=${OUT:-$root/build/tanaka}
corpus=$OUT/$SOURCE-$TARGET-threshold$THRESHOLD
binary=$corpus/data model=$(model_folder "$corpus" "$UPDATES")
need_commands fairseq-train sacrebleu
device=$(device_flag)

if [ -n "$DATA" ]; then
    [ -d "$DATA" ] || fail "there is no folder $DATA; set DATA to the corpus, or leave it empty to download it"
else
    DATA=$OUT/text
    step "download" "$OUT/download.log" python "$here/../download.py" \
        https://raw.githubusercontent.com/odashi/small_parallel_enja/master "$here/sha256" "$DATA"
fi

if [ ! -e "$binary/done" ]; then
    rm -rf "$binary"
    step "fairseq-preprocess" "$corpus/preprocess.log" \
        fairseq-preprocess --source-lang "$SOURCE" --target-lang "$TARGET" --destdir "$binary" \
        --thresholdsrc "$THRESHOLD" --thresholdtgt "$THRESHOLD" \
        --trainpref "$DATA/train" --validpref "$DATA/dev" --testpref "$DATA/test"
    touch "$binary/done"
fi

train_model "$binary" "$model" --max-update "$UPDATES" \
    --lr-scheduler tri_stage --phase-ratio "(0.0, 0.7, 0.3)" --final-lr-scale 0.05 --eval-tokenized-bleu
translate "$binary" "$model"
echo "tanaka: $ARCH, $SOURCE-$TARGET, test set, translations in $model/test.$TARGET"
score "$DATA/test.$TARGET" "$model" --tokenize none
