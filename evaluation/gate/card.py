"""What the gate tells a version's page at MLflow: a section of its description, and a tag for each task.

`gate.verdict` is `passed`, `forced` or `refused`; `gate.TASK` is the deciding score of a task with its name and number
of questions, and `gate.mean` their mean. The scores as numbers are metrics of MLflow's model.
"""

from __future__ import annotations

from typing import Literal

from evaluation.gate.rules import Comparison, Verdict, describe_seen, format_change
from revelator import registry
from revelator.registry import Version

HEADING = "## Promotion gate"
LONGEST = 5_000  # characters of a description that MLflow keeps
Decision = Literal["passed", "forced", "refused"]


def record_verdict(version: Version, verdict: Verdict, decision: Decision, rival: Version | None, about: str) -> None:
    """Writes tags and description; those of an earlier verdict give way."""
    tags = {f"gate.{c.task}": f"{c.challenger:.3f} {c.score}, n = {c.n}" for c in verdict.comparisons}
    tags |= {"gate.mean": f"{verdict.challenger_mean:.3f}", "gate.verdict": decision}
    with registry.store_errors():
        store, number = registry.open_client(), str(version.version)
        known = store.get_model_version(version.name, number)
        for key in [key for key in known.tags if key.startswith("gate.") and key not in tags]:
            store.delete_model_version_tag(version.name, number, key)
        for key, value in tags.items():
            store.set_model_version_tag(version.name, number, key, value)
        made = (known.description or "").partition(HEADING)[0].rstrip()
        parts = filter(None, [made, write_card(verdict, decision, rival, about)])
        store.update_model_version(version.name, number, "\n\n".join(parts)[:LONGEST])


def write_card(verdict: Verdict, decision: Decision, rival: Version | None, about: str) -> str:
    """The section, in Markdown: the verdict, a row for each task, and what training has seen of the questions."""
    beside = f"champion {rival.version}" if rival else "floor"
    head = f"| task | score | n | this version | {beside} | change |"
    rows = [_write_row(comparison) for comparison in verdict.comparisons]
    seen = describe_seen(verdict, ["this version", beside][: len(verdict.seen)])
    why = [f"* {reason}" for reason in verdict.refusals]
    table = "\n".join([head, "|---|---|---|---|---|---|", *rows])
    return "\n\n".join(filter(None, [HEADING, f"**{decision}**: {about}", "\n".join(why), table, seen]))


def _write_row(of: Comparison) -> str:
    against = f"{of.bar:.3f} |" if of.change is None else f"{of.champion:.3f} | {format_change(of.change)}"
    return f"| {of.task} | {of.score} | {of.n} | {of.challenger:.3f} | {against} |"
