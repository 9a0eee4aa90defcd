"""`revelator doctor`: this machine and installation, what each part is for, and how to get what is missing.

Runs in the lightest installation: packages are looked up, not imported.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from packaging.requirements import Requirement
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from revelator import registry
from revelator.errors import ConfigError, RevelatorError
from revelator.options import AS_JSON, HOME
from serving.home.running import find_running_server
from serving.service.addresses import Ports
from serving.triton.installation import find_installation

GIGABYTE = 10**9
LEAST_DISK = 5 * GIGABYTE  # an index of 200,000 passages, a base and three served versions
COMMAND_SECONDS = 10.0

EXTRAS = {  # what each extra lets one do
    "data": "worlds and instruction sets: `revelator data`",
    "train": "fine-tuning, readers, MLflow: `revelator train`",
    "serve": "indexes, deploys, the inspector: `revelator index`, `serve`, `inspect`",
    "eval": "benchmarks, gate, reports: `revelator eval`, `model`, `demo`",
    "server": "the Triton server as a wheel",
    "dense": "search by meaning: `revelator index build --kind dense`",
    "ray": "work on a cluster: `--engine ray` of `index build`, `data build` and `eval run`",
    "gpu": "search by meaning on cards, in place of `dense`",
    "redact": "personal data in collected questions: `redact` of `rows: collected`",
    "milvus": "indexes in a collection of Milvus: `revelator index build --to milvus://…`",
}
CPU_FLAGS = {"avx2": "AVX2", "avx512f": "AVX-512", "avx512_bf16": "AVX512-BF16", "amx_bf16": "AMX"}
ON_A_NODE = ("gpus", "cuda", "bitsandbytes", "faiss-gpu", "vllm", "triton")  # `--gpu`
MARKS = {"ok": "[green]ok[/]", "absent": "[yellow]absent[/]", "fault": "[red]fault[/]"}


@dataclass(frozen=True)
class Finding:
    """One part: `absent` parts are optional, a `fault` must be mended before what it is for can work."""

    name: str
    state: str  # ok, absent, fault
    found: str
    purpose: str
    remedy: str = ""


@click.command()
@HOME
@click.option("--need", multiple=True, metavar="NAME", help="A part that must be there. Can be given more than once.")
@click.option("--gpu", is_flag=True, help="Only what a GPU node needs; a card that torch sees must be there.")
@AS_JSON
def doctor(home: Path, need: tuple[str, ...], gpu: bool, as_json: bool) -> None:
    """Look at this machine and installation: what is there, what it is for, how to get what is missing.

    \b
    Exit status: 0 nothing is at fault and all that is needed is there, 1 otherwise, 2 wrong usage.

    \b
    Examples:
      revelator doctor
      revelator doctor --need train --need gpu --json
      revelator doctor --gpu
    """
    findings = [each for each in examine(home) if not gpu or each.name in ON_A_NODE]
    if gpu:  # without a card, torch is not to blame
        need = (*need, "gpus", *("cuda" for each in findings if each.name == "gpus" and each.state == "ok"))
    names = [finding.name for finding in findings]
    if unknown := sorted(set(need) - set(names)):
        raise click.UsageError(f"--need {unknown[0]}: parts are {', '.join(names)}")
    missing = [each for each in findings if each.state == "fault" or (each.name in need and each.state == "absent")]
    if as_json:
        click.echo(json.dumps({"ok": not missing, "findings": [asdict(each) for each in findings]}))
    else:
        _print(findings)
        for each in missing:
            click.echo(f"error: {each.name}: {each.found}\n  hint: {each.remedy}", err=True)
    sys.exit(1 if missing else 0)


def examine(home: Path) -> Iterator[Finding]:
    """Examines one part after the other."""
    yield _examine_python()
    yield from _examine_extras()
    yield _examine_cpu()
    yield from _examine_gpu()
    apart = "`pip install vllm` in an environment of its own"
    yield _examine_package("vllm", "vllm", "large bases at high throughput, as an endpoint", apart)
    yield _examine_triton()
    yield _examine_disk(home)
    yield _examine_tracking(home)
    yield _examine_ports()
    yield from _examine_indexes(home)


def _examine_python() -> Finding:
    found = f"{platform.python_version()} at {sys.executable}"
    fits = (3, 11) <= sys.version_info < (3, 15)
    remedy = "" if fits else "install Python 3.11 to 3.14; Triton's wheel is for 3.11 and 3.12"
    return Finding("python", "ok" if fits else "fault", found, "everything", remedy)


def _examine_extras() -> Iterator[Finding]:
    """Whether what each extra brings is installed, in a version that it allows."""
    wanted = [Requirement(line) for line in importlib.metadata.requires("revelator") or ()]
    for extra, purpose in EXTRAS.items():
        own = [each for each in wanted if each.marker and each.marker.evaluate({"extra": extra})]
        missing, wrong = [], []
        for requirement in own:
            version = _find_version(requirement.name)
            if version is None:
                missing.append(requirement.name)
            elif not requirement.specifier.contains(version, prereleases=True):
                wrong.append(f"{requirement.name} {version}, not {requirement.specifier}")
        remedy = f"pip install 'revelator[{extra}]'"
        if wrong:
            yield Finding(extra, "fault", "; ".join(wrong), purpose, remedy)
        elif missing:
            yield Finding(extra, "absent", f"without {', '.join(missing)}", purpose, remedy)
        else:
            yield Finding(extra, "ok", f"{len(own)} packages", purpose)


def _examine_cpu() -> Finding:
    cpus = Path("/proc/cpuinfo")  # of Linux
    flags = set(cpus.read_text(encoding="utf-8").split()) if cpus.exists() else set()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIGABYTE
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    features = [name for flag, name in CPU_FLAGS.items() if flag in flags]
    found = f"{cores} cores, {memory:.0f} GB, {', '.join(features) or platform.machine()}"
    has_half = {"avx512_bf16", "amx_bf16"} & flags
    purpose = "training in bf16 and int8 products" if has_half else "training (in fp32: `precision: fp32`)"
    return Finding("cpu", "ok", found, purpose)


def _examine_gpu() -> Iterator[Finding]:
    """The cards by NVIDIA's own program, then what uses them."""
    purpose = "bases above a billion parameters, training and serving"
    fields = "name,memory.total,memory.free,driver_version,compute_cap"
    said = _run("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits")
    cards = [[value.strip() for value in line.split(",")] for line in (said or "").splitlines()]
    cards = [card for card in cards if len(card) == len(fields.split(","))]
    if not cards:
        yield Finding("gpus", "absent", "no NVIDIA card answers `nvidia-smi`", purpose, "install NVIDIA's driver")
    else:
        shown = [f"{name}, {int(free) / 1024:.0f} of {int(all) / 1024:.0f} GiB free" for name, all, free, *_ in cards]
        driver, capability = cards[0][3:]
        yield Finding("gpus", "ok", f"{'; '.join(shown)}; driver {driver}, compute {capability}", purpose)
    yield _examine_cuda(bool(cards))
    yield _examine_package("bitsandbytes", "bitsandbytes", "4-bit bases (QLoRA)", "pip install 'revelator[train]'")
    instead = "pip uninstall faiss-cpu; pip install 'revelator[gpu]'"
    yield _examine_package("faiss-gpu", "faiss-gpu-cu12", "vectors searched on a card", instead)


def _examine_cuda(has_card: bool) -> Finding:
    purpose = "torch on the cards"
    version = _find_version("torch")
    if version is None:
        return Finding("cuda", "absent", "no torch", purpose, "pip install 'revelator[train]'")
    if not has_card:
        return Finding("cuda", "absent", f"torch {version}, no card", purpose, "nothing: torch runs on the CPU")
    answer = _run(sys.executable, "-c", "import torch; print(torch.version.cuda, torch.cuda.is_available())") or ""
    cuda, _, works = answer.strip().partition(" ")
    if works != "True":
        remedy = "install the torch build of your driver's CUDA: https://pytorch.org/get-started"
        return Finding("cuda", "fault", f"torch {version} does not see the card", purpose, remedy)
    return Finding("cuda", "ok", f"torch {version}, CUDA {cuda}", purpose)


def _examine_package(name: str, distribution: str, purpose: str, remedy: str) -> Finding:
    if version := _find_version(distribution):
        return Finding(name, "ok", version, purpose)
    return Finding(name, "absent", "not installed", purpose, remedy)


def _find_version(distribution: str) -> str | None:
    """The installed version of a package, which is not imported; None where there is none."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _examine_triton() -> Finding:
    purpose = "models on a server of their own: `revelator serve --triton local`"
    with tempfile.TemporaryDirectory() as work:
        try:
            found = find_installation(Path(work))
        except ConfigError as error:
            is_wheel_there = _find_version("nvidia-pytriton") is not None  # but not what it needs to run
            state = "fault" if is_wheel_there else "absent"
            return Finding("triton", state, error.message, purpose, error.hint or "")
        backends = sorted(folder.name for folder in found.backends.iterdir() if folder.is_dir())
        return Finding("triton", "ok", f"{found.binary}, backends: {', '.join(backends)}", purpose)


def _examine_disk(home: Path) -> Finding:
    place = next(folder for folder in (home.resolve(), *home.resolve().parents) if folder.exists())
    free = shutil.disk_usage(place).free
    found = f"{free / GIGABYTE:.0f} GB free at {place}"
    purpose = "sets, adapters, indexes, served versions"
    if not os.access(place, os.W_OK):
        return Finding("disk", "fault", f"{place} cannot be written", purpose, "name another --home")
    if free < LEAST_DISK:
        return Finding("disk", "fault", found, purpose, f"free {LEAST_DISK // GIGABYTE} GB, or name another --home")
    return Finding("disk", "ok", found, purpose)


def _examine_tracking(home: Path) -> Finding:
    purpose = "runs and the registry of versions"
    uri = registry.find_store(home)
    try:
        if uri.startswith(("http://", "https://")):
            registry.check_server(uri)
    except RevelatorError as error:
        return Finding("tracking", "fault", error.message, purpose, error.hint or "")
    return Finding("tracking", "ok", uri, purpose)


def _examine_ports() -> Finding:
    purpose = "HTTP and gRPC of `revelator serve`"
    if taken := Ports().find_taken():
        found = f"taken: {', '.join(map(str, taken))}; `revelator serve` takes others"
        return Finding("ports", "ok", found, purpose)
    return Finding("ports", "ok", f"free: {', '.join(map(str, asdict(Ports()).values()))}", purpose)


def _examine_indexes(home: Path) -> Iterator[Finding]:
    """What the service of the home folder searches, if one is up."""
    if running := find_running_server(home):
        versions = ", ".join(f"{name} version {version}" for name, version in running.indexes.items())
        refused = "".join(f"; the newer {name} is refused: {reason}" for name, reason in running.refused.items())
        remedy = "build or copy the index anew; the service takes it up by itself" if refused else ""
        state = "fault" if refused else "ok"
        yield Finding("indexes", state, f"{versions}{refused}", f"questions at {running.http}", remedy)


def _run(*command: str) -> str | None:
    """What a program writes; None where it is absent, fails, or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _print(findings: list[Finding]) -> None:
    """A line a part; of one that is not ok, what it is for and how to get it."""
    table = Table.grid(Column(width=6), Column(no_wrap=True), Column(overflow="fold"), padding=(0, 1))
    for each in findings:
        lines = [escape(each.found)]
        if each.state != "ok":
            lines += [f"[dim]for[/]  {escape(each.purpose)}", f"[dim]how[/]  {escape(each.remedy)}"]
        table.add_row(MARKS[each.state], each.name, "\n".join(lines))
    Console(highlight=False).print(table)
