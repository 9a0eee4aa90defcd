#!/usr/bin/env bash
# What a GPU node does with the package, on one page to send back: runs/gpu/page.md.
#
#   examples/gpu.sh                                   an hour on one card with 24 GB; BASE is taken from the Hub
#   BASE=/models/qwen3-0.6b CONFIG=qwen3-0.6b examples/gpu.sh
#   GPUS=0,1 PROCESSES=2 examples/gpu.sh              two cards
#   VLLM=http://127.0.0.1:8000 examples/gpu.sh        deploys to that vLLM server; else one is started, if vLLM is installed
#
# Run it from the repository's root, in an environment with `revelator[all]`. A finished stage is skipped. It was written
# without a GPU, and has not been run on one.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/.venv/bin:$PATH

export REVELATOR_HOME=runs/gpu
CONFIG=${CONFIG:-qwen3-0.6b} STEPS=${STEPS:-300} PROCESSES=${PROCESSES:-1} GPUS=${GPUS:-0}
WORLD=$REVELATOR_HOME/world SET=$REVELATOR_HOME/sets/world ADAPTER=$REVELATOR_HOME/adapters/$CONFIG
PAGE=$REVELATOR_HOME/page.md
base=(${BASE:+--base "$BASE"})
revelator doctor --gpu >/dev/null # ends here, and says why, where there is no card that torch sees
mkdir -p "$REVELATOR_HOME"

note() { # note TITLE COMMAND…: runs it, and puts what it says onto the page
  printf '\n## %s\n\n```\n$ %s\n' "$1" "${*:2}" >>"$PAGE"
  "${@:2}" 2>&1 | tee -a "$PAGE"
  echo '```' >>"$PAGE"
}

printf '# A GPU node, %s\n' "$(date -u +%F)" >"$PAGE"
note "The machine" revelator doctor --gpu

[ -f "$WORLD/manifest.json" ] || revelator data build data_gen/configs/worlds/mixed.yaml --size 4000 --out "$WORLD"
[ -f "$SET/manifest.json" ] || REVELATOR_WORLD=$WORLD revelator data build data_gen/configs/world.yaml --out "$SET"
if [ ! -f "$ADAPTER/manifest.json" ]; then
  note "Training" revelator train "$CONFIG" "${base[@]}" --set "$SET" --out "$ADAPTER" --steps "$STEPS" \
    --processes "$PROCESSES" --resume
fi
note "Grades" revelator model grade latest --set "$SET"
note "Deploy to our own engine" revelator model deploy --alias latest --engine own --gpus "$GPUS"
if [ -z "${VLLM:-}" ] && command -v vllm >/dev/null; then
  VLLM=http://127.0.0.1:8100
  VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve "${BASE:-$(sed -n 's/^base: //p' "training/configs/$CONFIG.yaml")}" \
    --host 127.0.0.1 --port 8100 --enable-lora --max-lora-rank 64 --max-model-len 4096 --gpu-memory-utilization 0.5 \
    --logprobs-mode processed_logprobs >"$REVELATOR_HOME/vllm.log" 2>&1 &
  trap 'kill %1; wait' EXIT
  until curl --silent --fail --output /dev/null "$VLLM/health"; do kill -0 $!; sleep 1; done
fi
if [ -n "${VLLM:-}" ]; then
  note "Deploy to vLLM" revelator model deploy --alias latest --engine vllm --url "$VLLM"
fi
for shape in 0.6B 4B; do
  note "Plans and tokens a second, $shape" python benchmarks/gpu.py --shape "$shape"
done
echo "page: $PAGE"
