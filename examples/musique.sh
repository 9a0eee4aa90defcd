#!/usr/bin/env bash
# The whole way on two published sets, MuSiQue and 2WikiMultiHopQA: from their files to a report of measured systems.
#
#   examples/musique.sh                 about an hour on two CPU cores
#   SAMPLE=5 examples/musique.sh        the same way with 5 questions a system
#   BASE=Qwen/Qwen2.5-0.5B examples/musique.sh
#
# REVELATOR_DATA is the folder of the published files (data_gen/configs/real.yaml names them; `../shared/data` if it is not set).
# Run it from the repository's root. A finished stage is skipped: remove what it wrote to run it again.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/.venv/bin:$PATH

export REVELATOR_DATA=${REVELATOR_DATA:-../shared/data}
export REVELATOR_HOME=runs/real # adapters, registry and served models; evaluation/configs/*.yaml look there, too
BASE=${BASE:-mini}              # `mini` is the embedded base; a folder, or a causal model of the Hub
SAMPLE=${SAMPLE:-100}           # questions of each set that every system is asked
export OMP_WAIT_POLICY=PASSIVE  # threads that spin while they wait take the cores from the others
SET=$REVELATOR_HOME/sets/real INDEX=$REVELATOR_HOME/indexes/real ADAPTER=$REVELATOR_HOME/adapters/real

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

# ---------------------------------------------------------------------------------------------------------------------
# 1. The instruction set. Both sets publish how their questions fall apart into steps, so their plans are known and no
#    language model annotates anything. Questions are split by the hash of their id; the held-out ones never come in.
say "instruction set of MuSiQue and 2WikiMultiHopQA"
[ -f "$SET/manifest.json" ] || revelator data build data_gen/configs/real.yaml --out "$SET"
revelator data inspect "$SET"

# ---------------------------------------------------------------------------------------------------------------------
# 2. The adapter: LoRA on the base, tracked in MLflow, registered as the next version. It goes on from a checkpoint.
say "fine-tune $BASE"
[ -f "$ADAPTER/manifest.json" ] || revelator train real --base "$BASE" --set "$SET" --out "$ADAPTER" --resume

# 3. How well it does each task, on questions that it has not seen: with intervals, and by source.
say "grade the new version"
revelator model grade latest --set "$SET" --source musique
revelator model grade latest --set "$SET" --source 2wiki

# 4. The gate: it becomes champion only if no task falls and their mean rises, shown by the paired bootstrap.
say "promote it, if it is better"
revelator model promote --set "$SET"

# ---------------------------------------------------------------------------------------------------------------------
# 5. The passages: Wikipedia's introductions and the paragraphs of both sets, one BM25 index.
say "index the passages"
[ -f "$INDEX/manifest.json" ] || revelator index build --out "$INDEX" \
  "$REVELATOR_DATA/wikipedia/wiki_intros.jsonl.gz" \
  "$REVELATOR_DATA/corpora/musique_passages.jsonl.gz" \
  "$REVELATOR_DATA/2wikimultihopqa/2wiki_corpus.jsonl.gz"

# 6. The served version: staged, tried, switched to. `revelator serve --index "$INDEX"` then answers at a gRPC address, and
#    `revelator ask "Who founded the company that distributed UHF?"` answers with its passages, and `--steps` shows the plan.
say "deploy the champion"
revelator model deploy

# ---------------------------------------------------------------------------------------------------------------------
# 7. The systems beside each other, on the same dev questions: our strategies, baselines of other papers, switches.
#    EM, Acc and F1 of answers, recall and nDCG of gold pages, validity of plans, tokens, calls and seconds. Each run is
#    a folder that goes on where it stopped. Recall by the leaves of a plan is that of `compile`, by the whole question
#    that of `naive-10`, both at equal numbers of pages.
for set in musique 2wiki; do
  say "systems on $SAMPLE dev questions of $set"
  revelator eval run "evaluation/configs/compare-$set.yaml" --sample "$SAMPLE" --out "$REVELATOR_HOME/evaluations/$set"
done

# 8. One page: tables with intervals, paired differences, charts, the worst cases with their plans.
say "report"
revelator eval report "$REVELATOR_HOME"/evaluations/*/* --against auto --out "$REVELATOR_HOME/report"
