"""A merged model, or an adapter alone, as GGUF, which llama.cpp and Ollama load: by llama.cpp's own converters.

The converters are scripts of llama.cpp's repository. Their `#!/usr/bin/env python3` finds this process's Python, which
has torch and transformers; they bring the package gguf and want sentencepiece beside them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from revelator.errors import ArtifactError, ConfigError
from revelator.files import write_bytes
from revelator.tasks import TRANSLATE_BNF

CONVERTER, LORA_CONVERTER = "convert_hf_to_gguf.py", "convert_lora_to_gguf.py"  # of one folder
CONVERTER_VARIABLE = "REVELATOR_GGUF_CONVERTER"
NAME = "revelator"
FILE, LORA_FILE = f"{NAME}.gguf", f"{NAME}-lora.gguf"
KINDS = ("f16", "f32", "bf16", "q8_0")  # of weights, that the converter writes; llama-quantize makes smaller ones
MODELFILE, TASKS_MODELFILE = "Modelfile", "Modelfile.tasks"
SAID_LINES = 3  # of the converter's last words


def find_converter(given: Path | None, script: str = CONVERTER) -> Path | None:
    """The converter of this name beside the one that is given, else the one on PATH, else None. Raises ConfigError for
    a file that is not there."""
    if given is None:
        found = shutil.which(script)
        return Path(found) if found else None
    if not (converter := given.with_name(script) if script == LORA_CONVERTER else given).is_file():
        hint = f"name the file {CONVERTER} of a checkout of llama.cpp, which has {LORA_CONVERTER} beside it"
        raise ConfigError("no such file", where=f"--converter {converter}", hint=hint)
    return converter.absolute()


def check_architecture(base: Path) -> None:
    """Raises ArtifactError for a base that llama.cpp does not know: a prefix language model of our own."""
    from revelator.prefix_lm.model import PrefixLMConfig

    if json.loads((base / "config.json").read_bytes()).get("model_type") == PrefixLMConfig.model_type:
        raise ArtifactError(
            "llama.cpp cannot load this base: it is a prefix language model, an architecture of our own that reads a "
            "prompt in both directions",
            where=str(base),
            hint="serve it with `revelator serve`, which needs no llama.cpp, or export it with --format hf; for GGUF "
            "train an adapter on a base that llama.cpp knows: revelator train smollm2-135m --set DIR",
        )


def convert(converter: Path, model: Path, file: Path, kind: str, base: Path | None = None) -> None:
    """Writes `file` from the merged `model`, or from the adapter at `model` of the base at `base`. Raises ArtifactError
    with the converter's last words when it fails."""
    is_program = os.access(converter, os.X_OK)
    command = [str(converter)] if is_program else [sys.executable, str(converter)]
    command += [str(model), "--outfile", str(file), "--outtype", kind]
    command += ["--base", str(base)] if base else ["--model-name", NAME]
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=os.environ | {"PATH": paths},
        check=False,
    )
    if done.returncode or not file.is_file():
        said = " / ".join(done.stdout.strip().splitlines()[-SAID_LINES:]) or "nothing"
        raise ArtifactError(
            f"the converter ended with status {done.returncode} and said: {said}",
            where=str(converter),
            hint=f"in the environment of {sys.executable} it needs sentencepiece; a base that it does not know needs "
            "a newer llama.cpp",
        )


def write_modelfiles(folder: Path, end: str) -> None:
    """Writes what `ollama create` reads, beside the GGUF; `end` is the tokenizer's end token.

    By `Modelfile` a question is what a user types, and its plan is the reply. By `Modelfile.tasks` the whole prompt of
    a task is put, as a planner with `prompt: trained` is.
    """
    plan = TRANSLATE_BNF.template.replace("$question", "{{ .Prompt }}")
    assert TRANSLATE_BNF.language is not None
    room = TRANSLATE_BNF.language.token_limit
    for name, template in ((MODELFILE, plan), (TASKS_MODELFILE, "{{ .Prompt }}")):
        lines = [
            f"# ollama create {NAME} -f {name}",
            f"FROM ./{FILE}",
            f'TEMPLATE """{template}"""',
            f'PARAMETER stop "{end}"',
            'PARAMETER stop "\n"',
            "PARAMETER temperature 0",
            f"PARAMETER num_predict {room}",
        ]
        write_bytes(folder / name, ("\n".join(lines) + "\n").encode())
