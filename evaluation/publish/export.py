"""`revelator model export`: a version for engines that load no adapters, as one model with its card, or as an agent.

`hf` is what transformers, vLLM and others load. `gguf` is one file for llama.cpp, made of it by llama.cpp's own
converter. `ollama` is the same with what `ollama create` reads. `lora` is the adapter alone, for a base as GGUF.
`agent` is the whole system, a version over an index, as a model of MLflow.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, cast

import click

from evaluation.publish.card import CARD, read_facts, write_card
from evaluation.publish.plan_check import (
    SERVER_VARIABLE,
    PlanCheck,
    compare_plans,
    find_server,
    read_questions,
    serve_gguf,
    write_by_engine,
    write_by_server,
)
from revelator import registry
from revelator.artifact import (
    GGUF,
    MERGED,
    explain_full_disk,
    find_base,
    read_adapter_fingerprints,
    read_manifest,
    verify_adapter,
)
from revelator.errors import ConfigError
from revelator.files import stage_folder, write_bytes
from revelator.fingerprints import FILE as FINGERPRINTS
from revelator.options import AS_JSON, BASE, HOME, PATH, refuse_options_except
from revelator.registry import CHAMPION, TRACKING_URI
from revelator.rows import Row
from serving.agent.parts import AGENT, Parts, collect_parts, log_agent
from serving.models.adapters import Adapter, find_adapter, open_engine
from training.export import describe_export, write_merged
from training.gguf import (
    CONVERTER,
    CONVERTER_VARIABLE,
    FILE,
    KINDS,
    LORA_CONVERTER,
    LORA_FILE,
    check_architecture,
    convert,
    find_converter,
    write_modelfiles,
)

Format = Literal["hf", "gguf", "ollama", "lora"]
FORMATS: tuple[Format, ...] = ("hf", "gguf", "ollama", "lora")
AGENT_FORMAT = "agent"
AGENT_OPTIONS = "name", "form", "index", "url", "home", "as_json"


@dataclass(frozen=True)
class Tools:
    """Programs of llama.cpp, the kind of weights that the converter writes, and the base as GGUF beside which an
    adapter is checked; a format `hf` needs none."""

    converter: Path | None = None
    kind: str = KINDS[0]
    server: Path | None = None
    base: Path | None = None


@click.command()
@click.argument("name", default=CHAMPION)
@click.option(
    "--format",
    "form",
    type=click.Choice((*FORMATS, AGENT_FORMAT)),
    default="hf",
    show_default=True,
    help="For which engines.",
)
@click.option("--out", type=PATH, help="Folder of the export; an agent goes into the registry.")
@BASE
@click.option(
    "--converter",
    type=PATH,
    envvar=CONVERTER_VARIABLE,
    help=f"gguf, ollama, lora: llama.cpp's {CONVERTER}.  [env: {CONVERTER_VARIABLE}; default: the one on PATH]",
)
@click.option("--weights", type=click.Choice(KINDS), default=KINDS[0], show_default=True, help="Those of a GGUF.")
@click.option("--check", type=PATH, metavar="SET", help="Ask adapter and export dev questions of an instruction set.")
@click.option("--questions", default=20, show_default=True, type=click.IntRange(1), help="--check: for each language.")
@click.option(
    "--llama-server",
    type=PATH,
    envvar=SERVER_VARIABLE,
    help=f"--check: llama.cpp's server.  [env: {SERVER_VARIABLE}; default: the one on PATH]",
)
@click.option("--base-gguf", type=PATH, help="lora, --check: the base as GGUF, to which the adapter is added.")
@click.option("--index", type=PATH, help="agent: the index that it searches.  [default: as of `revelator serve`]")
@click.option("--url", metavar="HOST:PORT", help="agent: hold no version, and ask the service of this gRPC address.")
@HOME
@AS_JSON
def export(
    name: str,
    form: str,
    out: Path | None,
    base: str | None,
    converter: Path | None,
    weights: str,
    check: Path | None,
    questions: int,
    llama_server: Path | None,
    base_gguf: Path | None,
    index: Path | None,
    url: str | None,
    home: Path,
    as_json: bool,
) -> None:
    """Write base and adapter as one model, for engines that load no adapters, the adapter alone for llama.cpp, or the
    whole system as an MLflow agent.

    NAME is a folder, a version number, `latest`, or an alias (default: champion). An adapter that was trained on a
    4-bit base (`quantization: nf4`) goes into the bf16 weights that the 4-bit ones were made from, as any other does.
    With --check the plans of adapter and export are compared word for word, and those that differ are listed.

    \b
    hf      safetensors in bf16, tokenizer, generation configuration: transformers, vLLM
    gguf    one file for llama.cpp, by its own converter
    ollama  the same file with a Modelfile: ollama create revelator -f DIR/Modelfile
    lora    the adapter alone, a few megabytes: llama-server -m BASE.gguf --lora DIR/revelator-lora.gguf
    agent   a version over an index, with the settings of --home: mlflow models serve

    An agent is asked a question, and then becomes the next version of the registered model NAME-agent. `base` is the
    embedded base. With --url, or with REVELATOR_URL where it is loaded, it asks a running service, and opens nothing
    itself.

    \b
    Examples:
      revelator model export --out runs/exports/hf
      revelator model export runs/adapters/qwen --out runs/exports/qwen
      revelator model export 3 --base /models/Qwen2.5-0.5B --out runs/exports/3
      revelator model export --format gguf --converter llama.cpp/convert_hf_to_gguf.py --out runs/exports/gguf
      revelator model export --format ollama --weights q8_0 --out runs/exports/ollama
      revelator model export --format lora --out runs/exports/lora
      revelator model export --format gguf --check runs/sets/mine --questions 50 --out runs/exports/gguf
      revelator model export --format agent --index runs/indexes/mine
      revelator model export --format agent --url 127.0.0.1:8001 --json
    """
    if form == AGENT_FORMAT:
        refuse_options_except(AGENT_OPTIONS, "--format agent")
        return export_agent(name, index, url, home, as_json)
    if index or url:
        where = "--index" if index else "--url"
        raise ConfigError("an agent alone has it", where=where, hint="leave it out, or add --format agent")
    if (base_gguf is not None) != (form == "lora" and check is not None):
        hint = "--format lora --check SET --base-gguf FILE: the file that llama-server loads"
        raise ConfigError("an adapter alone is checked on its base: nothing else", where="--base-gguf", hint=hint)
    if base_gguf and not base_gguf.is_file():
        raise ConfigError("no such file", where=f"--base-gguf {base_gguf}", hint="name the base as GGUF")
    if out is None:
        raise click.UsageError(f"--out is needed: the folder of the {form} export")
    form = cast(Format, form)
    (MERGED if form == "hf" else GGUF).check_place(out)
    adapter = find_adapter(name, home)
    folder = require_folder(adapter)
    base_folder = find_base(base or adapter.base_name)
    verify_adapter(folder, base_folder)
    tools = Tools()
    if form != "hf":
        check_architecture(base_folder)
        script = LORA_CONVERTER if form == "lora" else CONVERTER
        found = find_converter(converter, script) or _ask_for_converter(name, form, out, weights, base, home)
        tools = Tools(found, weights, find_server(llama_server) if check else None, base_gguf)
    rows = read_questions(check, folder, questions) if check else []
    manifest, checked = export_adapter(adapter, form, out, base, tools, rows)
    if as_json:
        return click.echo(json.dumps({"out": str(out), **manifest, "check": checked.to_json() if checked else None}))
    made = f"base {manifest['base']['name']} with adapter {manifest['adapter'][:12]}…"
    click.echo(f"{form} export {out}: {made}, {'bf16' if form == 'hf' else weights}")
    if checked:
        click.echo(str(checked))
        for one in checked.differences:
            click.echo(f"  {one.task}: {one.question}\n    adapter: {one.adapter}\n    export:  {one.export}")


def export_agent(name: str, index: Path | None, url: str | None, home: Path, as_json: bool) -> None:
    """Logs the whole system at MLflow, and says where it is. Raises ConfigError for what cannot be packed."""
    if url and index:
        raise ConfigError("a service searches its own index", where="--index", hint="give one of --index and --url")
    store = registry.connect(home)
    model_id, number = log_agent(Parts(url=url) if url else collect_parts(name, index, home))
    uri = f"models:/{AGENT}/{number}"
    if as_json:
        return click.echo(json.dumps({"name": AGENT, "version": number, "uri": uri, "model_id": model_id}))
    click.echo(f"{uri}\nnext: {TRACKING_URI}={store} mlflow models serve -m {uri} --env-manager local")


def require_folder(adapter: Adapter) -> Path:
    """The adapter's folder. Raises ConfigError for the base alone."""
    if adapter.folder is None:
        raise ConfigError("the base alone is no version", where="base", hint="name a version, an alias or a folder")
    return adapter.folder


def _ask_for_converter(name: str, form: Format, out: Path, weights: str, base: str | None, home: Path) -> Path:
    own = [] if Path(name).is_dir() else ["--home", str(home)]
    start = ["revelator", "model", "export", name, *(["--base", base] if base else []), *own]
    merged, file = f"{out}-hf", f"{out}.gguf"
    with_converter = ["--format", form, "--weights", weights, "--converter", f"llama.cpp/{CONVERTER}"]
    lines = ["with a checkout of llama.cpp:", shlex.join([*start, *with_converter, "--out", str(out)])]
    if form != "lora":
        lines += [
            "or step by step:",
            shlex.join([*start, "--format", "hf", "--out", merged]),
            shlex.join(["python", f"llama.cpp/{CONVERTER}", merged, "--outfile", file, "--outtype", weights]),
        ]
    script = LORA_CONVERTER if form == "lora" else CONVERTER
    message = f"llama.cpp's {script} is not on PATH, and neither --converter nor {CONVERTER_VARIABLE} says where it is"
    raise ConfigError(f"{message}; nothing was written", hint="\n    ".join(lines))


def export_adapter(
    adapter: Adapter,
    form: Format,
    out: Path,
    base: str | None = None,
    tools: Tools | None = None,
    rows: Sequence[Row] = (),
) -> tuple[dict[str, Any], PlanCheck | None]:
    """Writes the export to `out`, by one rename. Returns its manifest, and how its plans for `rows` compare with the
    adapter's, None without rows. Raises what `write_merged` and `convert` do."""
    tools = tools or Tools()
    with explain_full_disk(out), stage_folder(out) as stage:
        if form == "hf":
            about = write_merged(require_folder(adapter), base, stage)
        elif form == "lora":
            about = _write_lora(require_folder(adapter), base, tools, stage)
        else:
            about = _write_gguf(require_folder(adapter), form, base, tools, stage)
        checked = _check(adapter, form, stage, base, tools, rows) if rows else None
        card = write_card(read_facts(adapter), form, check=str(checked) if checked else "")
        write_bytes(stage / CARD, card.encode())
        kind = MERGED if form == "hf" else GGUF
        return kind.write_manifest(stage, about | ({"check": checked.to_json()} if checked else {})), checked


def _write_lora(adapter: Path, base: str | None, tools: Tools, stage: Path) -> dict[str, Any]:
    manifest = read_manifest(adapter)
    base_folder = find_base(base or manifest.base_name)
    assert tools.converter is not None
    convert(tools.converter, adapter, stage / LORA_FILE, tools.kind, base_folder)
    read_adapter_fingerprints(adapter, base_folder).write(stage)
    return describe_export(manifest, adapter)


def _write_gguf(adapter: Path, form: Format, base: str | None, tools: Tools, stage: Path) -> dict[str, Any]:
    from transformers import AutoTokenizer

    assert tools.converter is not None
    with TemporaryDirectory(prefix=".merged-", dir=stage) as scratch:
        model = Path(scratch)
        about = write_merged(adapter, base, model, precision="fp32")  # the converter rounds it once
        convert(tools.converter, model, stage / FILE, tools.kind)
        shutil.copy(model / FINGERPRINTS, stage)
        if form == "ollama":
            write_modelfiles(stage, AutoTokenizer.from_pretrained(model, trust_remote_code=False).eos_token)
    return about


def _check(
    adapter: Adapter, form: Format, stage: Path, base: str | None, tools: Tools, rows: Sequence[Row]
) -> PlanCheck:
    ours = write_by_engine(open_engine(adapter, base))
    if form == "hf":
        return compare_plans(rows, ours, write_by_engine(open_engine(Adapter(None), str(stage))))
    assert tools.server is not None
    served = (tools.base, stage / LORA_FILE) if tools.base else (stage / FILE, None)
    with serve_gguf(tools.server, *served) as url:
        return compare_plans(rows, ours, write_by_server(url))
