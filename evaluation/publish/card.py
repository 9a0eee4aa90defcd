"""The model card of a version: what it is, its figures, the data it learned from, its base and its prompts.

Nothing in it is written by hand: figures are those of the promotion gate and of `eval report` in the registry, data
sets and licences those of the sets' own rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from revelator import registry
from revelator.artifact import DEFAULT_BASE, AdapterManifest, read_manifest, split_revision
from revelator.registry import Version
from revelator.rows import SET
from revelator.tasks import TASKS
from serving.models.adapters import Adapter
from training.export import write_data_card

CARD = "README.md"
CONFIG = "config.yaml"  # of the training, in an adapter's folder
VERDICT = "verdict.json"  # of a promotion's run
Kind = Literal["adapter", "hf", "gguf", "ollama", "lora"]
LIBRARIES = dict.fromkeys(("gguf", "ollama", "lora"), "llama.cpp") | {"adapter": "peft", "hf": "transformers"}
RELATIONS = dict.fromkeys(("gguf", "ollama"), "quantized") | {"adapter": "adapter", "lora": "adapter", "hf": "merge"}
ASK = """\
# serving.yaml in the home folder says
#   planner:
#     url: http://127.0.0.1:{port}/v1
#     model: revelator
#     prompt: trained
revelator serve"""
ASK_HERE, ASK_OLLAMA = ASK.format(port=8080), ASK.format(port=11434)
USES: dict[Kind, str] = {  # in the repository's folder
    "adapter": f"vllm serve {{base}} --enable-lora --lora-modules revelator=. --port 8080\n{ASK_HERE}",
    "hf": f"vllm serve . --served-model-name revelator --port 8080\n{ASK_HERE}",
    "gguf": f"llama-server -m revelator.gguf --port 8080\n{ASK_HERE}",
    "lora": f"llama-server -m BASE.gguf --lora revelator-lora.gguf --port 8080  # the base as GGUF\n{ASK_HERE}",
    "ollama": f"ollama create revelator -f Modelfile.tasks\n{ASK_OLLAMA}\n"
    'ollama create plans -f Modelfile && ollama run plans "Who is older, Ada Lovelace or Alan Turing?"',
}
USE_EMBEDDED = "revelator model grade {what} --set SET"  # no other engine runs its base


@dataclass(frozen=True)
class Facts:
    """What is known of a version. `verdict` is that of its promotion, {} without one; `figures` are the metrics that
    the registry has of it, by name; `missing` names sets that are not at hand, or have changed since."""

    manifest: AdapterManifest
    version: int | None = None
    verdict: Mapping[str, Any] = field(default_factory=dict)
    forced: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    sets: tuple[Path, ...] = ()
    missing: tuple[str, ...] = ()


def read_facts(adapter: Adapter) -> Facts:
    """Reads them from the adapter's folder, the registry and the sets where they lie."""
    assert adapter.folder is not None
    manifest = read_manifest(adapter.folder)
    sets, missing = _find_sets(_list_sets(adapter.folder, adapter.tags), manifest.data_digest)
    if adapter.version is None:
        return Facts(manifest, sets=sets, missing=missing)
    return Facts(
        manifest,
        adapter.version.version,
        _read_verdict(adapter.version),
        adapter.tags.get("forced", ""),
        _read_figures(adapter.version),
        sets,
        missing,
    )


def _list_sets(folder: Path, tags: Mapping[str, str]) -> list[Path]:
    """The sets of the training, from its configuration; else the one that the registry names."""
    config = folder / CONFIG
    values = yaml.safe_load(config.read_text(encoding="utf-8")) if config.is_file() else {}
    named = values.get("sets") or [tags[name] for name in ("set_folder",) if name in tags]
    return [Path(name) for name in dict.fromkeys(named)]


def _find_sets(sets: Iterable[Path], digests: str) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Those that are at hand as training read them, and the names of the others."""
    abouts = {folder: SET.find_manifest(folder) for folder in sets}
    found = tuple(folder for folder, about in abouts.items() if about and about["digest"] in digests.split())
    return found, tuple(folder.name for folder in abouts if folder not in found)


def _read_verdict(version: Version) -> dict[str, Any]:
    run = version.tags.get("promotion_run")
    if not run:
        return {}
    with registry.store_errors():
        import mlflow

        return dict(mlflow.artifacts.load_dict(f"runs:/{run}/{VERDICT}"))


def _read_figures(version: Version) -> dict[str, float]:
    """The metrics of the version's model but those of the gate, which its verdict has."""
    if not version.model_id:
        return {}
    with registry.store_errors():
        metrics = registry.open_client().get_logged_model(version.model_id).metrics or []
    own = {metric.key.removeprefix("model/"): float(metric.value) for metric in metrics}
    return {name: value for name, value in sorted(own.items()) if not name.startswith("challenger/")}


def find_hub_base(facts: Facts, given: str | None = None) -> str | None:
    """The base's id on the Hub; None for a base that lies in a folder or is embedded."""
    name = given or facts.manifest.base_name
    return None if name == DEFAULT_BASE or Path(name).is_absolute() else name


def write_card(facts: Facts, kind: Kind, *, title: str = "revelator", base: str | None = None, check: str = "") -> str:
    """Writes the card. `base` is the base's id on the Hub; `check` says how an export's plans compare."""
    hub_base = find_hub_base(facts, base)
    front: dict[str, Any] = {"library_name": LIBRARIES[kind], "pipeline_tag": "text-generation"}
    id, revision = split_revision(hub_base or "")
    if hub_base:
        front |= {"base_model": id, "base_model_relation": RELATIONS[kind]}
    front["tags"] = ["revelator", "question-decomposition"]
    shown = hub_base or Path(facts.manifest.base_name).name
    use = USES[kind]
    if shown == DEFAULT_BASE:
        use = USE_EMBEDDED.format(what="." if kind == "adapter" else "base --base .")
    parts = [
        f"---\n{yaml.safe_dump(front, sort_keys=False)}---",
        f"# {title}",
        _describe(facts, kind, shown, check),
        f"## Use\n\n```\n{use.format(base=f'{id} --revision {revision}' if revision else shown)}\n```",
        f"## The promotion gate\n\n{_describe_gate(facts)}",
        f"## Results\n\n{_describe_results(facts)}",
        f"## Data\n\n{_describe_data(facts, shown)}",
        f"## Base\n\n{shown}, sha256 of its files `{facts.manifest.base_digest[:16]}…`. Its licence holds here, too.",
        f"## Prompts\n\n{_describe_prompts(facts)}",
    ]
    return "\n\n".join(parts) + "\n"


def _describe(facts: Facts, kind: Kind, base: str, check: str) -> str:
    merged = f"{base} with a LoRA adapter merged into it"
    alone = f"A LoRA adapter of {base}"
    whats = {"adapter": alone, "lora": f"{alone}, as GGUF", "hf": merged, "gguf": f"{merged}, as GGUF"}
    version = f" This is version {facts.version} of its registry." if facts.version else ""
    checked = f" Checked: {check}." if check else ""
    return (
        f"{whats.get(kind, whats['gguf'])}. It writes plans for questions, which Revelator runs. It is no chat model: "
        f"it is put the prompts below, as they stand.{version}{checked}"
    )


def _describe_gate(facts: Facts) -> str:
    if not facts.verdict:
        return "It has not been promoted: the gate has no figures of it."
    verdict = facts.verdict
    lines = ["| task | score | questions | value | before | change, 95 % |", "|---|---|---|---|---|---|"]
    for task, own in verdict["tasks"].items():
        before = "" if own["champion"] is None else f"{own['champion']:.3f}"
        lines.append(
            f"| {task} | {own['score']} | {own['n']} | {own['challenger']:.3f} | {before} | {_spell(own['change'])} |"
        )
    before = "" if verdict["champion_mean"] is None else f"{verdict['champion_mean']:.3f}"
    lines.append(f"| mean | | | {verdict['mean']:.3f} | {before} | {_spell(verdict['change'])} |")
    forced = f"\n\nThe promotion was forced: {facts.forced}." if facts.forced else ""
    return "\n".join(lines) + f"\n\n{verdict['seen']}{forced}"


def _spell(change: Mapping[str, float] | None) -> str:
    return f"{change['mean']:+.3f} [{change['low']:+.3f}, {change['high']:+.3f}]" if change else ""


def _describe_results(facts: Facts) -> str:
    if not facts.figures:
        return "The registry has no figures of it."
    rows = [f"| {name} | {value:.4g} |" for name, value in facts.figures.items()]
    return "\n".join(["| measure | value |", "|---|---|", *rows])


def _describe_data(facts: Facts, base: str) -> str:
    digest = f"The digests of its sets: `{facts.manifest.data_digest or 'none'}`."
    absent = f"Licences of {', '.join(facts.missing)} are not known here." if facts.missing else ""
    return "\n\n".join(filter(None, [write_data_card(base, facts.sets), absent, digest]))


def _describe_prompts(facts: Facts) -> str:
    tasks = [name for name in facts.manifest.tasks if name in TASKS]
    if not tasks:
        return "The manifest names no tasks."
    shown = [f"`{name}`:\n\n```\n{TASKS[name].template}\n```" for name in tasks]
    return "\n\n".join(["What is written follows the colon, from a space to the end of the line.", *shown])
