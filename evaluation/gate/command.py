"""`revelator model list`, `grade`, `promote`: score adapters, and move the alias behind the gate."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from evaluation.gate.card import Decision, record_verdict
from evaluation.gate.rules import RULES, Verdict, build_verdict_table, describe_seen, judge, read_rules, render_text
from evaluation.gate.scores import Scores, build_score_table, read_pinned_rows, score_adapter
from revelator import promotions, registry
from revelator.errors import ArtifactError, ConfigError, Conflict, GateRefused
from revelator.options import AS_JSON, BASE, HOME, PATH
from revelator.registry import CHAMPION, NAME, Version
from revelator.rows import SET
from serving.commands.model_options import INDEX_ADDRESS
from serving.models.adapters import find_adapter
from serving.protocols import DECODINGS, Decoding

if TYPE_CHECKING:
    from evaluation.gate.questions import Examination
    from serving.retrieval.places import IndexAddress

SET_HELP = "Instruction set.  [default: the one it was trained on]"
SPLIT = click.option("--split", default="dev", show_default=True, type=click.Choice(["train", "dev", "test"]))


@click.command()
@click.argument("adapter", default=CHAMPION)
@click.option("--set", "set_folders", type=PATH, multiple=True, help=f"{SET_HELP}  Can be given more than once.")
@SPLIT
@click.option("--limit", default=400, show_default=True, type=click.IntRange(0), help="Rows a task and set; 0: all.")
@click.option("--source", help="Only rows of this source of the set.  [default: all]")
@click.option("--decoding", type=click.Choice(DECODINGS), default="beams", show_default=True, help="Of plans.")
@BASE
@HOME
@AS_JSON
def grade(
    adapter: str,
    set_folders: tuple[Path, ...],
    split: str,
    limit: int,
    source: str | None,
    decoding: Decoding,
    base: str | None,
    home: Path,
    as_json: bool,
) -> None:
    """Print an adapter's scores, task by task, with 95 % intervals.

    ADAPTER is a folder, a version number, `latest`, an alias (default: champion), or `base` for the base alone. What it
    wrote for each row is kept below HOME/gate: a broken-off run goes on.

    \b
    Examples:
      revelator model grade --set runs/demo/sets/world
      revelator model grade 3 --split test --limit 500 --json
      revelator model grade runs/adapters/mine --set runs/mine/set --limit 0
      revelator model grade base --base mini --set runs/musique/set --source musique --decoding free
    """
    named = find_adapter(adapter, home)
    folders = [_find_set(None, named.tags)] if not set_folders else [_find_set(each, {}) for each in set_folders]
    rows = [row for folder in folders for row in read_pinned_rows(folder, split, limit, source)]
    scores = score_adapter(named, {"": rows}, adapter, home, base, decoding)
    if as_json:
        click.echo(json.dumps({task: own.to_json() for task, own in scores.items()}))
        return
    Console().print(build_score_table(scores, f"{adapter} on {split}"))


@click.command()
@click.option("--version", "number", default="latest", show_default=True, help="The challenger: a number or `latest`.")
@click.option("--set", "set_folder", type=PATH, help=SET_HELP)
@SPLIT
@click.option("--limit", default=400, show_default=True, type=click.IntRange(1), help="Rows a task.")
@click.option("--margin", type=click.FloatRange(0, 1), help="How far any task may fall; overrides those of --rules.")
@click.option("--rules", type=PATH, default=RULES, help="Margins and floors.  [default: evaluation/gate/gate.yaml]")
@click.option("--questions", type=PATH, metavar="FILE", help="Ask both versions these, too, end to end.")
@click.option("--index", type=INDEX_ADDRESS, help="The index that --questions are asked over.")
@click.option("--column", "columns", multiple=True, metavar="FIELD=NAME", help="FILE's name of a column; repeatable.")
@click.option("--floors-only", is_flag=True, help="Leave the champion out, for one that cannot be loaded any more.")
@click.option("--force", is_flag=True, help="Judge on too few questions all the same; it is recorded.")
@click.option("--dry-run", is_flag=True, help="Score and judge; move nothing.")
@BASE
@HOME
@AS_JSON
def promote(
    number: str,
    set_folder: Path | None,
    split: str,
    limit: int,
    margin: float | None,
    rules: Path,
    questions: Path | None,
    index: IndexAddress | None,
    columns: tuple[str, ...],
    floors_only: bool,
    force: bool,
    dry_run: bool,
    base: str | None,
    home: Path,
    as_json: bool,
) -> None:
    """Score a challenger and the champion on the same questions; make the challenger champion if no task falls by more
    than its margin and the mean over tasks rises, both by the paired bootstrap.

    The questions are the new ones of the challenger's set and, pinned, those of the champion's. With --questions both
    are also asked a file of questions and answers end to end (as `revelator eval run --questions`), and so is the next
    challenger. Fewer questions than the rules want (100) are refused unless --force is given.

    Exit status 1, with the table of scores, when the gate refuses; and when another promotion came first.

    \b
    Examples:
      revelator model promote
      revelator model promote --questions qa.csv --index runs/indexes/mine
      revelator model promote --version 4 --set runs/mine/set --limit 500
      revelator model promote --dry-run --json
    """
    from evaluation.gate.questions import (  # brings the harness, which the other commands do not need
        TAG,
        Examination,
        find_too_few,
        list_question_files,
        open_question_file,
        read_slices,
    )

    rule = read_rules(rules, margin)
    registry.connect(home, must_exist=True)
    challenger, seen = registry.resolve(NAME, number), promotions.read_standing(NAME)
    champion = registry.resolve(NAME, seen.champion) if seen.champion else None
    if champion and champion.version == challenger.version:
        text = f"version {challenger.version} is the champion already"
        return _print_summary(as_json, text, {"version": champion.version, "moved": False})
    folder, rival = _find_set(set_folder, challenger.tags), None if floors_only else champion
    given = open_question_file(questions, index, columns) if questions else None
    slices, shared, unread = read_slices(folder, challenger, rival, split, limit)
    files = list_question_files(given, rival)
    exam = Examination(home, base, limit, slices, shared, files)
    counts = exam.count(challenger)
    if (doubts := [*unread, *find_too_few(counts, rule.minimum)]) and not force:
        if as_json:
            said = {"version": challenger.version, "replaced": champion.version if champion else None, "moved": False}
            click.echo(json.dumps(said | {"refusals": doubts}))
        hint = "give more (--limit, --set, --questions); or judge all the same, which is recorded: --force"
        raise GateRefused("; ".join(doubts), hint=hint)
    theirs = _score_champion(rival, exam) if rival else None
    ours = exam.score(challenger, f"version {challenger.version}")
    verdict = judge(ours, theirs, rule)
    summary = _summarise(challenger, champion, verdict)
    if not dry_run:
        decision: Decision = "refused" if verdict.refusals else "forced" if doubts else "passed"
        record_verdict(challenger, verdict, decision, rival, describe_mean(summary))
    against = f"champion {rival.version}" if rival else None
    table = build_verdict_table(verdict, f"version {challenger.version}", against)
    if not verdict.passes:
        if as_json:
            click.echo(json.dumps(summary))
        hint = "the alias stays where it is; train longer or on more data, score more rows (--limit), or see --rules"
        raise GateRefused("; ".join(verdict.refusals), table=render_text(table), hint=hint)
    Console(stderr=as_json).print(table)
    if dry_run:
        return _print_summary(as_json, "the gate is open; --dry-run moves nothing", summary)
    scored = {"set": str(folder), "split": split, "rows": sum(map(len, slices.values()))}
    summary["questions"] = counts
    sides = {"challenger": ours, "champion": theirs or {}}
    run_id = _log_promotion(summary | {"moved": True}, scored, sides, folder, challenger)
    registry.tag_version(challenger, "promotion_run", run_id)
    if doubts:
        registry.tag_version(challenger, "forced", "; ".join(doubts))
    if files:
        registry.tag_version(challenger, TAG, next(iter(files.values())).to_tag())
    try:
        promotions.move(NAME, challenger.version, seen)
    except Conflict as conflict:
        registry.open_client().set_tag(run_id, "outcome", conflict.message)
        if as_json:
            click.echo(json.dumps(summary | {"conflict": conflict.message}))
        raise
    was = f", in place of version {champion.version}" if champion else ""
    text = f"version {challenger.version} is champion{was}\nnext: revelator model deploy --home {home}"
    _print_summary(as_json, text, summary | {"moved": True})


@click.command()
@HOME
@AS_JSON
def show_versions(home: Path, as_json: bool) -> None:
    """List the registered versions, the newest first, with their aliases, runs and where they were deployed.

    \b
    Examples:
      revelator model list
      revelator model list --home runs/demo --json
    """
    registry.connect(home, must_exist=True)
    found = registry.list_versions(NAME)
    if as_json:
        rows = [{"version": v.version, "aliases": list(a), "run_id": v.run_id, "tags": v.tags} for v, a in found]
        return click.echo(json.dumps({"name": NAME, "versions": rows}))
    table = Table("version", "aliases", "run", "deployed")
    for version, aliases in found:
        deployed = version.tags.get("deployed", "")
        table.add_row(str(version.version), ", ".join(aliases), version.run_id, escape(deployed))
    Console().print(table)


def _print_summary(as_json: bool, text: str, summary: dict[str, Any]) -> None:
    click.echo(json.dumps(summary) if as_json else text)


def _log_promotion(
    summary: dict[str, Any], scored: dict[str, Any], sides: dict[str, Scores], set_folder: Path, challenger: Version
) -> str:
    """Logs scores, verdict, data set and both versions in an MLflow run, before the alias moves; the challenger's
    scores on its model, too. Returns the run's id."""
    import mlflow

    from training.tracking import log_data_set

    version, replaced = str(summary["version"]), str(summary["replaced"] or "none")
    about = f"Version {version} became champion in place of {replaced}: {describe_mean(summary)}"
    with mlflow.start_run(run_name=f"promote-{version}", description=about) as run:
        mlflow.set_tags({"kind": "promotion", "challenger": version, "replaces": replaced})
        mlflow.log_params(scored)
        log_data_set(set_folder, SET.read_manifest(set_folder, verify=True), "evaluation")
        for side, scores in sides.items():
            of = challenger.model_id or None if side == "challenger" else None
            for task, own in scores.items():
                mlflow.log_metrics({f"{side}/{task}_{name}": v for name, v in own.scores.items()}, model_id=of)
        mlflow.log_dict(summary, "verdict.json")
    return str(run.info.run_id)


def describe_mean(summary: dict[str, Any]) -> str:
    """How the mean over tasks changed, in words."""
    if summary["change"] is None:
        return f"mean over tasks {summary['mean']:.3f}"
    change = summary["change"]
    ends = f"{change['mean']:+.3f} [{change['low']:+.3f}, {change['high']:+.3f}]"
    return f"mean over tasks {summary['champion_mean']:.3f} to {summary['mean']:.3f}, {ends}"


def _summarise(challenger: Version, champion: Version | None, verdict: Verdict) -> dict[str, Any]:
    """What --json writes while nothing has moved."""
    tasks = {}
    for comparison in verdict.comparisons:
        seen = {side: n.to_json() for side, n in zip(("challenger", "champion"), comparison.seen, strict=False)}
        own = asdict(comparison) | {"needed": comparison.bar, "passed": comparison.passes, "seen": seen}
        tasks[own.pop("task")] = {name: value for name, value in own.items() if name != "bar"}
    return {
        "version": challenger.version,
        "replaced": champion.version if champion else None,
        "moved": False,
        "mean": verdict.challenger_mean,
        "champion_mean": verdict.champion_mean,
        "change": asdict(verdict.change) if verdict.change else None,
        "refusals": verdict.refusals,
        "seen": describe_seen(verdict, ["challenger", "champion"][: len(verdict.seen)]),
        "tasks": tasks,
    }


def _find_set(given: Path | None, tags: dict[str, str]) -> Path:
    folder = given or (Path(tags["set_folder"]) if "set_folder" in tags else None)
    if folder is None or not folder.is_dir():
        where = f" at {folder}" if folder else ""
        raise ConfigError(f"no instruction set{where} to score on", hint="give one: --set DIR")
    return folder


def _score_champion(champion: Version, exam: Examination) -> Scores:
    try:
        return exam.score(champion, f"champion {champion.version}")
    except ArtifactError as error:
        hint = f"{error.hint or 'mend it'}; or gate the challenger without the champion: --floors-only"
        raise ArtifactError(f"the champion cannot be scored: {error.message}", where=error.where, hint=hint) from error
