#!/usr/bin/env bash
#SBATCH --job-name=revelator
#SBATCH --nodes=1 --ntasks-per-node=1 --gpus-per-node=8 --exclusive
#SBATCH --requeue --signal=TERM@120 --open-mode=append
#
# Trains on all cards of one SLURM node or of several, from the repository's root, in an environment with
# `revelator[train]` on PATH. Sent again, or put back into the queue, it goes on from the last whole checkpoint.
#
#   sbatch deploy/slurm.sh CONFIG OUT [OPTIONS OF revelator train]
#   sbatch --nodes=2 --gpus-per-node=4 deploy/slurm.sh qwen3-4b /shared/adapters/mine --set /shared/sets/mine
#   ACCELERATE=fsdp sbatch deploy/slurm.sh …                    how the cards share the work: ddp, fsdp, zero3
#
# OUT, what the options name, and MLFLOW_TRACKING_URI must be the same for all nodes. The first node runs `revelator
# train`; the others join it by the configuration that it has written beside OUT.
set -euo pipefail
CONFIG=$1 OUT=$2
shift 2
cards=${SLURM_GPUS_ON_NODE:-1}
export CONFIG OUT KIND=${ACCELERATE:-ddp} PROCESSES=$((SLURM_NNODES * cards)) BEGAN=$OUT.began
MAIN=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MAIN PORT=$((20000 + SLURM_JOB_ID % 10000))
mkdir -p "$(dirname "$OUT")"
touch "$BEGAN"

train() {
  local file=$OUT.node-$SLURM_NODEID.yaml
  {
    sed -E "s/^(num_machines): .*/\1: $SLURM_NNODES/; s/^(machine_rank): .*/\1: $SLURM_NODEID/" \
      "training/configs/accelerate/$KIND.yaml"
    printf 'main_process_ip: %s\nmain_process_port: %d\n' "$MAIN" "$PORT"
  } >"$file"
  if [ "$SLURM_NODEID" = 0 ]; then
    exec revelator train "$CONFIG" --out "$OUT" --processes "$PROCESSES" --accelerate "$file" --resume "$@"
  fi
  until [ "$OUT.work/config.yaml" -nt "$BEGAN" ]; do sleep 1; done
  exec accelerate launch --config_file "$file" --num_processes "$PROCESSES" -m training.launch \
    "$OUT.work/config.yaml" --resume < <(exec tail --pid=$$ -f /dev/null) # a training ends with its input
}
export -f train
exec srun --kill-on-bad-exit=1 bash -euo pipefail -c 'train "$@"' train "$@"
