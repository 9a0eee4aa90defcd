"""What retrieval alone says, as figures and a page: recall and nDCG at equal documents, paired, by hops and shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evaluation.metrics.bootstrap import Interval, bootstrap_columns
from evaluation.published import TITLES, table
from evaluation.retrieval.queries import DEPTH, WAYS, Ranked, ndcg_at, recall_at

BUDGETS = (2, 5, 10, 20)  # documents
SHORT = 5  # the budget of the tables by hops and by shape
FEWEST, SURE = 5, 20  # questions of a group in a table, and in a sentence
NAMES = {
    "own": "its own paragraphs",
    "pooled": "the set's paragraphs pooled",
    "index": "the index",
}
MEASURES: dict[str, Callable[[Ranked, str, int], float]] = {"recall": recall_at, "ndcg": ndcg_at}


def metrics_of(rows: Sequence[Ranked]) -> dict[str, Any]:
    """Every figure: `means` and, against the whole question on the same questions, `differences`; and `curves`, recall
    at each budget up to `DEPTH`.

    A line names the set, the corpus, the questions (`dev`: with the model's ways; `all`: the two ways that need none),
    the group (`all`, hops or shape), the way, the measure and the budget.
    """
    rows = sorted(rows, key=lambda row: (row.id, row.corpus))  # an order that no kill decides
    means: list[dict[str, Any]] = []
    differences: list[dict[str, Any]] = []
    curves, queries = [], []
    for place, part in _parts(rows):
        ways = [way for way in WAYS if all(way in row.found for row in part)]
        for group, members in _groups(part):
            lines = [
                place | {"group": group, "measure": measure, "budget": budget, "way": way}
                for measure in MEASURES
                for budget in (BUDGETS if group == "all" else (SHORT,))
                for way in ways
            ]
            values = np.array([[_value(row, line) for line in lines] for row in members])
            whole = np.array([[_value(row, line | {"way": "question"}) for line in lines] for row in members])
            both = bootstrap_columns(np.hstack([values, values - whole]))
            means += [line | _figure(found) for line, found in zip(lines, both[: len(lines)], strict=True)]
            gains = zip(lines, both[len(lines) :], strict=True)
            differences += [line | _figure(found) for line, found in gains if line["way"] != "question"]
        budgets = list(range(1, DEPTH + 1))
        for way in ways:
            at_each = bootstrap_columns([[recall_at(row, way, budget) for budget in budgets] for row in part])
            curves.append(place | {"way": way, "budgets": budgets, "recall": [_figure(found) for found in at_each]})
        searches = bootstrap_columns([[row.queries[way] for way in ways] for row in part])
        queries += [place | {"way": way} | _figure(found) for way, found in zip(ways, searches, strict=True)]
    return {"means": means, "differences": differences, "curves": curves, "queries": queries}


def _value(row: Ranked, line: dict[str, Any]) -> float:
    return MEASURES[line["measure"]](row, line["way"], line["budget"])


def _parts(rows: Sequence[Ranked]) -> list[tuple[dict[str, str], list[Ranked]]]:
    found = []
    for source in TITLES:
        for corpus in NAMES:
            here = [row for row in rows if row.source == source and row.corpus == corpus]
            for questions, part in (("dev", [row for row in here if row.split == "dev"]), ("all", here)):
                if part and (questions == "dev" or len(part) > sum(row.split == "dev" for row in part)):
                    found.append(({"set": source, "corpus": corpus, "questions": questions}, part))
    return found


def _groups(rows: Sequence[Ranked]) -> list[tuple[str, list[Ranked]]]:
    hops = [(f"{n} hops", [row for row in rows if row.hops == n]) for n in sorted({row.hops for row in rows})]
    shapes = [(shape, [row for row in rows if row.shape == shape]) for shape in sorted({row.shape for row in rows})]
    return [("all", list(rows)), *hops, *shapes]


def _figure(interval: Interval) -> dict[str, float]:
    return {"n": interval.n, "value": interval.mean, "low": interval.low, "high": interval.high}


def page_text(metrics: dict[str, Any], about: dict[str, Any]) -> str:
    """The tables as Markdown, with how they were made."""
    head = {
        "Command": f"`{about['command']}`",
        "Date": about["started"][:10],
        "Machine": about["machine"],
        "Adapter": f"`{about['version']}`, manifest `{about['adapter'][:16]}`; base `{about['base'][:16]}`",
        "Set": f"`{about['set'][:16]}`",
        "Indexes": ", ".join(f"{name} `{digest[:16]}`" for name, digest in about["indexes"].items()),
        "Configuration": f"`{about['config_hash'][:16]}`",
    }
    parts = [
        INTRODUCTION,
        "\n".join(f"* **{name}**: {value}" for name, value in head.items()),
        "## In short",
        _gains_table(metrics),
        *_where(metrics),
        "## Dev questions",
        DEV,
        _main_table(metrics, "dev"),
        f"By hops and by shape; groups of fewer than {FEWEST} questions are left out.",
        _group_table(metrics, "dev", hops=True),
        _group_table(metrics, "dev", hops=False),
        "## Every question, without a model",
        ALL,
        _main_table(metrics, "all"),
        _group_table(metrics, "all", hops=False),
    ]
    return "\n\n".join(parts) + "\n"


INTRODUCTION = f"""# Whole question or compiled plan: retrieval alone

How many of the gold paragraphs are found by the whole question, and how many by the leaves of its plan, **at the same
number of documents**: leaves take turns, first ranks first, and what two of them find counts once. No generator has a
part in the first three ways; in the last the embedded extractive reader answers the leaves. Brackets are 95 %
percentile bootstrap intervals over questions (10,000 resamples); *gain* is the paired difference to the whole question
on the same questions. This page is written by its command.

* *{WAYS["gold"]}*: the set's own decomposition. What decomposing could bring if nothing went wrong.
* *{WAYS["compiled"]}*: what the model's plan brings when every leaf before was answered rightly.
* *{WAYS["executed"]}*: as the executor asks them; a wrong answer sends the next leaf astray.

*Its own paragraphs*: the candidates that the set publishes beside a question (20 in MuSiQue, 10 in 2WikiMultiHopQA),
ranked with the pool's statistics; gold is a paragraph, and a budget of all candidates finds everything. *Pooled*: all
paragraphs of the set and its published corpus; *the index*: Wikipedia's introductions and all those; there gold is a
page, and questions count all of whose gold pages are in it."""

DEV = "Split off by the hash of their id; neither the adapter nor the embedded base was trained on them."

ALL = """Dev questions and those that the model was trained on: the whole question and the gold decomposition need no
model, so all may count. This is the room that decomposing has, and where."""


def _main_table(metrics: dict[str, Any], questions: str) -> str:
    lines = []
    for line in _chosen(metrics["means"], questions=questions, group="all", measure="recall", budget=SHORT):
        key = {name: line[name] for name in ("set", "corpus", "way")}
        cells = [_cell(metrics["means"], questions, "all", "recall", budget, key) for budget in BUDGETS]
        gain = _cell(metrics["differences"], questions, "all", "recall", SHORT, key, sign=True)
        cells += [gain, _cell(metrics["means"], questions, "all", "ndcg", 10, key)]
        cells.append(_cell(metrics["differences"], questions, "all", "ndcg", 10, key, sign=True))
        [searches] = _chosen(metrics["queries"], questions=questions, **key)
        name = f"{WAYS[line['way']]} ({searches['value']:.1f} searches)"
        lines.append([TITLES[line["set"]], NAMES[line["corpus"]], name, line["n"], *cells])
    head = ["set", "searched", "asked", "n", *(f"recall@{budget}" for budget in BUDGETS)]
    return table([*head, f"gain, recall@{SHORT}", "nDCG@10", "gain, nDCG@10"], lines)


def _gains_table(metrics: dict[str, Any]) -> str:
    """The gain of each way over the whole question, bold where the interval leaves out 0."""
    lines = []
    wanted = {"questions": "dev", "group": "all", "measure": "recall", "budget": SHORT}
    for line in _chosen(metrics["means"], way="question", **wanted):
        place = {"set": line["set"], "corpus": line["corpus"]}
        gains = [_chosen(metrics["differences"], way=way, **wanted, **place) for way in WAYS if way != "question"]
        cells = [f"**{_text(gain, True)}**" if gain["low"] > 0 else _text(gain, True) for [gain] in gains]
        lines.append([TITLES[line["set"]], NAMES[line["corpus"]], line["n"], _text(line), *cells])
    ways = [name for way, name in WAYS.items() if way != "question"]
    return table(["set", "searched", "n", f"whole question, recall@{SHORT}", *(f"gain: {way}" for way in ways)], lines)


def _where(metrics: dict[str, Any]) -> list[str]:
    """The shapes in the order of what decomposing brings, over every question, where there are enough of them."""
    found = _chosen(metrics["differences"], questions="all", way="gold", measure="recall", budget=SHORT)
    shapes = [line for line in found if line["group"] != "all" and "hops" not in line["group"] and line["n"] >= SURE]
    said = [
        f"{TITLES[line['set']]} `{line['group']}` {_text(line, True)} (n={line['n']})"
        for line in sorted(shapes, key=lambda line: -line["value"])
        if line["corpus"] == "pooled"
    ]
    about = f"By shape, gold steps, paragraphs pooled, every question, shapes of {SURE} questions and more"
    return [f"{about}, most gain first: {'; '.join(said)}."] if said else []


def _group_table(metrics: dict[str, Any], questions: str, *, hops: bool) -> str:
    lines = []
    for line in _chosen(metrics["means"], questions=questions, measure="recall", budget=SHORT, way="question"):
        group = line["group"]
        if group == "all" or hops != group.endswith("hops") or line["n"] < FEWEST:
            continue
        cells = []
        for way in WAYS if questions == "dev" else ("question", "gold"):
            key = {"set": line["set"], "corpus": line["corpus"], "way": way}
            which = metrics["means"] if way == "question" else metrics["differences"]
            cells.append(_cell(which, questions, group, "recall", SHORT, key, sign=way != "question"))
        name = group if hops else f"`{group}`"
        lines.append([TITLES[line["set"]], NAMES[line["corpus"]], name, line["n"], *cells])
    ways = [f"gain: {WAYS[way]}" for way in WAYS if way != "question" and (questions == "dev" or way == "gold")]
    return table(["set", "searched", "of", "n", f"whole question, recall@{SHORT}", *ways], lines)


def _chosen(lines: Sequence[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    return [line for line in lines if all(line[name] == value for name, value in wanted.items())]


def _cell(
    lines: Sequence[dict[str, Any]],
    questions: str,
    group: str,
    measure: str,
    budget: int,
    key: dict[str, str],
    *,
    sign: bool = False,
) -> str:
    found = _chosen(lines, questions=questions, group=group, measure=measure, budget=budget, **key)
    return _text(found[0], sign) if found else "–"


def _text(line: dict[str, Any], sign: bool = False) -> str:
    form = "+.3f" if sign else ".3f"
    return f"{line['value']:{form}} [{line['low']:{form}}, {line['high']:{form}}]"
