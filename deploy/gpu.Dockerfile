# A GPU node: Triton with its Python backend, vLLM, Python 3.12, and the command `revelator`:
#   docker build -f deploy/gpu.Dockerfile -t revelator:0.1.0-gpu .
# NVIDIA's image holds Triton 2.71, and vLLM 0.24 with the packages that it pins. Ours are others (transformers, NumPy,
# llguidance), so they have an environment of their own, in which the service runs and Triton runs our models.
ARG BASE=nvcr.io/nvidia/tritonserver:26.07-vllm-python-py3@sha256:31e20bfbc65055d6b85553a00d45342a62c506874aa996c11ae53650151f05b1
FROM ${BASE}
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev python3.12-venv \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --create-home revelator \
 && python3.12 -m venv /opt/revelator
WORKDIR /src
RUN /opt/revelator/bin/pip install --no-cache-dir torch==2.13.0
COPY . .
RUN /opt/revelator/bin/pip install --no-cache-dir -c requirements.lock '.[serve,gpu]' pymilvus
ENV PATH=/opt/revelator/bin:/opt/tritonserver/bin:$PATH
USER 10001
WORKDIR /home/revelator
ENTRYPOINT ["revelator"]
