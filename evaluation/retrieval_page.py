"""What retrieval alone says, as figures and a page: recall and nDCG at equal documents, paired, by hops and shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evaluation.bootstrap import Interval, bootstrap
from evaluation.results import SETS, table
from evaluation.retrieval_queries import DEPTH, WAYS, Ranked, ndcg_at, recall_at

BUDGETS = (2, 5, 10, 20)  # documents
SHORT = 5  # the budget of the tables by hops and by shape
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
    means, differences, curves = [], [], []
    for place, part in _parts(rows):
        ways = [way for way in WAYS if all(way in row.found for row in part)]
        for group, members in _groups(part):
            for measure, of in MEASURES.items():
                for budget in BUDGETS if group == "all" else (SHORT,):
                    at = place | {"group": group, "measure": measure, "budget": budget}
                    values = {way: [of(row, way, budget) for row in members] for way in ways}
                    means += [at | {"way": way} | _figure(bootstrap(values[way])) for way in ways]
                    differences += [
                        at | {"way": way} | _figure(bootstrap(_less(values[way], values["question"])))
                        for way in ways[1:]
                    ]
        for way in ways:
            at_each = [[recall_at(row, way, budget) for row in part] for budget in range(1, DEPTH + 1)]
            points = [_figure(bootstrap(values, resamples=2_000)) for values in at_each]
            curves.append(place | {"way": way, "budgets": list(range(1, DEPTH + 1)), "recall": points})
    queries = [
        place | {"way": way} | _figure(bootstrap([row.queries[way] for row in part]))
        for place, part in _parts(rows)
        for way in WAYS
        if all(way in row.queries for row in part)
    ]
    return {"means": means, "differences": differences, "curves": curves, "queries": queries}


def _parts(rows: Sequence[Ranked]) -> list[tuple[dict[str, str], list[Ranked]]]:
    found = []
    for source in SETS:
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


def _less(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    return [one - other for one, other in zip(ours, theirs, strict=True)]


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
        "## Dev questions",
        DEV,
        _main_table(metrics, "dev"),
        _queries_table(metrics),
        "### By hops",
        _group_table(metrics, "dev", hops=True),
        "### By shape",
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
ranked with the pool's statistics; gold is a paragraph. *Pooled*: all paragraphs of the set and its published corpus;
*the index*: Wikipedia's introductions and all those; there gold is a page, and questions count all of whose gold pages
are in it."""

DEV = "Split off by the hash of their id; neither the adapter nor its base was trained on them."

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
        lines.append([SETS[line["set"]], NAMES[line["corpus"]], WAYS[line["way"]], line["n"], *cells])
    head = ["set", "searched", "asked", "n", *(f"recall@{budget}" for budget in BUDGETS)]
    return table([*head, f"gain, recall@{SHORT}", "nDCG@10", "gain, nDCG@10"], lines)


def _queries_table(metrics: dict[str, Any]) -> str:
    lines = [
        [SETS[line["set"]], NAMES[line["corpus"]], WAYS[line["way"]], line["n"], _text(line)]
        for line in _chosen(metrics["queries"], questions="dev")
    ]
    return table(["set", "searched", "asked", "n", "searches a question"], lines)


def _group_table(metrics: dict[str, Any], questions: str, *, hops: bool) -> str:
    lines = []
    for line in _chosen(metrics["means"], questions=questions, measure="recall", budget=SHORT, way="question"):
        group = line["group"]
        if group == "all" or hops != group.endswith("hops"):
            continue
        cells = []
        for way in WAYS if questions == "dev" else ("question", "gold"):
            key = {"set": line["set"], "corpus": line["corpus"], "way": way}
            which = metrics["means"] if way == "question" else metrics["differences"]
            cells.append(_cell(which, questions, group, "recall", SHORT, key, sign=way != "question"))
        name = group if hops else f"`{group}`"
        lines.append([SETS[line["set"]], NAMES[line["corpus"]], name, line["n"], *cells])
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
