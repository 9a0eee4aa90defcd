"""A stand-in for Triton's vLLM backend: its protocol, as its published source has it, over our own engine.

No part of vLLM runs here. What is the backend's: names and types of the tensors, decoupled answers, the prompt echoed
unless it is excluded, sampling parameters as a JSON string, `structured_outputs` inside them as another JSON string, an
adapter chosen by `lora_name` from multi_lora.json, log probabilities as JSON by the number of the token, a Lark grammar
refused. What is the engine's: the texts and probabilities.
"""

import json
from pathlib import Path

import numpy as np
import torch
import triton_python_backend_utils as pb_utils

from revelator.plans.grammar import Grammar
from serving.models.engine import Engine, never_cancelled

KNOWN = {"temperature", "max_tokens", "lora_name", "structured_outputs", "logprobs", "allowed_token_ids", "seed"}


class TritonPythonModel:
    def initialize(self, args):
        assert pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))
        folder = Path(args["model_repository"]) / args["model_version"]
        engine, loras = (json.loads((folder / name).read_text()) for name in ("model.json", "multi_lora.json"))
        assert engine["enable_lora"] and engine["logprobs_mode"] == "processed_logprobs"
        self.engines = {name: Engine(engine["model"], Path(path), threads=1) for name, path in loras.items()}

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            try:
                answer = pb_utils.InferenceResponse(output_tensors=self.answer(request))
            except Exception as error:
                answer = pb_utils.InferenceResponse(error=pb_utils.TritonError(f"Error generating stream: {error}"))
            sender.send(answer, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def answer(self, request):
        prompt = self.given(request, "text_input").decode()
        sampling = json.loads(self.given(request, "sampling_parameters") or request.parameters())
        if unknown := set(sampling) - KNOWN:
            raise ValueError(f"Unexpected keyword argument {unknown.pop()!r}")
        if sampling["lora_name"] not in self.engines:
            raise ValueError(f"LoRA {sampling['lora_name']} is not supported, we currently support {[*self.engines]}")
        engine = self.engines[sampling["lora_name"]]
        if "allowed_token_ids" in sampling:
            text, logprobs, written = self.choose(engine, prompt, sampling)
        else:
            text, logprobs, written = self.write(engine, prompt, sampling)
        echo = "" if self.given(request, "exclude_input_in_output") else prompt
        counts = {"num_input_tokens": engine.count_tokens([prompt]), "num_output_tokens": [written]}
        tensors = [pb_utils.Tensor("text_output", np.array([(echo + text).encode()], dtype=np.object_))]
        if self.given(request, "return_logprobs"):
            tensors.append(pb_utils.Tensor("logprobs", np.array([json.dumps(logprobs).encode()], dtype=np.object_)))
        for name, value in counts.items():
            if self.given(request, f"return_{name}"):
                tensors.append(pb_utils.Tensor(name, np.array(value, dtype=np.uint32)))
        return tensors

    def given(self, request, name):
        tensor = pb_utils.get_input_tensor_by_name(request, name)
        return tensor.as_numpy()[0] if tensor is not None else None

    def choose(self, engine, prompt, sampling):
        assert sampling["max_tokens"] == 1
        batch = engine.tokenizer.pad({"input_ids": engine.tokenizer([prompt])["input_ids"]}, return_tensors="pt")
        logits = engine.model.read_ends(batch["input_ids"], batch["attention_mask"], never_cancelled)[0]
        allowed = torch.full_like(logits, -torch.inf)
        allowed[sampling["allowed_token_ids"]] = logits[sampling["allowed_token_ids"]]
        values, tokens = allowed.log_softmax(-1).topk(sampling["logprobs"])
        entries = {
            int(token): {"logprob": float(value), "rank": rank, "decoded_token": engine.tokenizer.decode([int(token)])}
            for rank, (value, token) in enumerate(zip(values, tokens, strict=True), 1)
        }
        return engine.tokenizer.decode([int(tokens[0])]), [entries], 1

    def write(self, engine, prompt, sampling):
        grammars = None
        if "structured_outputs" in sampling:
            wanted = json.loads(sampling["structured_outputs"])  # a string, as the backend wants it
            if "grammar" in wanted:
                raise ValueError("Invalid BNF grammar for structured outputs")
            text = "start: /" + wanted["regex"].replace("/", r"\/") + "/"
            grammars = [Grammar(text, ("x",), brackets=")", opening="(")]
        [row] = engine.generate([prompt], sampling["temperature"], sampling["max_tokens"], grammars)
        return row.text, None, row.tokens
