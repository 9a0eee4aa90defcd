"""Invented runs for tests of the report: two benchmarks, several systems, every kind of figure, and texts that bite."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from evaluation.harness.folder import QUESTIONS, Cost, QuestionRow, Run, begin_run
from evaluation.harness.run_metrics import write_metrics
from evaluation.rows import append_rows
from revelator.plans import make_letters_key, parse
from revelator.trace import Node, Passage, Trace, Usage

BITE = "</script><script>document.title='bitten'</script><img src=x onerror=\"document.title='bitten'\">"
PLANS = (
    "Who directed {0}? * Where was {{director}} born?",
    "Who directed {0}? + Who directed The Other {0}?",
    "(Who wrote {0}? * Where was {{writer}} born? + Who runs {0}?) * Did {{place}} know {{head}}?",
    "Who made {0}? * Where is {{maker}} from? * Who leads {{land}}?",
)
CALLS = [
    {"task": "search", "count": 1, "ms": 10.0},
    {"task": "relevance", "count": 2, "ms": 30.0, "tokens_in": 1_500},
]
MACHINE = "a processor, 2 cores, 8 GiB, Linux"
SYSTEMS = {"auto": 0.62, "naive RAG, k=5": 0.41, "direct": 0.18}


def write_runs(folder: Path, manifest: str, count: int = 24) -> list[Path]:
    """A run of each system on `multi-hop`, and of two on `negations`."""
    found = [
        _run(folder / f"m{n}", "multi-hop", name, skill, manifest, count)
        for n, (name, skill) in enumerate(SYSTEMS.items())
    ]
    return found + [
        _run(folder / f"n{n}", "negations", name, 0.7 - n / 4, manifest, count)
        for n, name in enumerate(("logic", "single"))
    ]


def _run(folder: Path, benchmark: str, system: str, skill: float, manifest: str, count: int) -> Path:
    rows = [_row(n, benchmark, system, skill) for n in range(count)]
    planned = system in ("auto", "logic")
    run = Run(
        config={"benchmark": benchmark, "strategy": system, "concurrency": 2},
        command=f"revelator eval run {benchmark}.yaml --strategy '{system}'",
        benchmark={
            "name": benchmark,
            "version": "1",
            "normaliser": "squad",
            "answers": "aliases",
            "files": {"q.jsonl": "ab" * 32},
        },
        system={"kind": "strategy" if planned else "baseline", "name": system},
        ablation={},
        ids=tuple(row.id for row in rows),
        adapter={"version": "1", "manifest": manifest, "base": "cd" * 32} if planned else {},
        index={"folder": "i", "digest": "ef" * 32, "count": 197_918},
        generator="embedded",
        code="01" * 32,
        machine=MACHINE,
        started="2026-01-02T03:04:05+00:00",
    )
    begin_run(folder, run)
    append_rows(folder / QUESTIONS, rows)
    write_metrics(folder, run)
    return folder


def _row(n: int, benchmark: str, system: str, skill: float) -> QuestionRow:
    draw = random.Random(f"{n} {benchmark} {system}")
    name = BITE if n == 3 else ("Lantern Row", "The Glass Orchard", "Tin Comet", "Marn")[n % 4]
    question = f"Where was the maker of {name} number {n} born?"
    plain = name.translate(str.maketrans("", "", "<>/=\"'()"))
    gold = PLANS[n % 4].format(plain)
    right = float(draw.random() < skill)
    f1 = right or draw.choice((0.0, 0.0, 0.4))
    titles = tuple(f"Page {draw.randrange(9)}" for _ in range(6))
    wanted = ("Page 1", "Page 2")
    route = draw.choice(("complex", "complex", "single", "straightforward"))
    scores: dict[str, Any] = {"em": right, "acc": max(right, float(f1 > 0)), "f1": f1}
    if system != "direct":
        found = len(set(titles) & set(wanted)) / 2
        scores |= {"recall": found, "recall@5": found, "ndcg@10": found * 0.9}
    planned = system in ("auto", "logic")
    plan = (gold if right else PLANS[(n + 1) % 4].format(plain)) if planned else ""
    tokens = {"auto": 4000, "direct": 60}.get(system, 900) + draw.randrange(300)
    searches = 0 if system == "direct" else 2
    cost = Cost(
        tokens, 30, 2, {"relevance": 10, "route": 1} if planned else {}, searches, 2, tokens / 2000, tokens / 2500
    )
    return QuestionRow(
        id=f"{benchmark}:{n}",
        benchmark=benchmark,
        question=question,
        golds=(f"Lima {n}", BITE),
        prediction=f"Lima {n}" if right else BITE if n == 3 else "Oslo",
        predictions=(f"Lima {n}",),
        status="answered",
        route=route,
        gold_route="complex" if n % 3 else "single",
        plan=plan,
        gold_plan=gold,
        shape=make_letters_key(parse(gold)),
        hops=2 + n % 3,
        depth=2,
        negations=n % 3 if benchmark == "negations" else 0,
        kind=("bridge", "comparison")[n % 2],
        gold_titles=wanted,
        retrieved=() if system == "direct" else titles,
        scores=scores,
        cost=cost,
        probability=draw.random() if system != "direct" else None,
        relevance=draw.random() if planned else None,
        trace=_trace(question, plan, name).to_json() if system != "direct" else None,
    )


def _trace(question: str, plan: str, name: str) -> Trace:
    """One node a leaf, or one search where there is no plan; titles and answers may bite."""
    from revelator.plans import list_leaves

    texts = [leaf.text for leaf in list_leaves(parse(plan))] if plan else [question]
    passage = Passage("p1", f"{name} (page)", "a text", 3.0, 0.9)
    nodes = [
        Node(
            str(place),
            "atomic",
            text,
            asked=text,
            documents=[passage, Passage("p2", "Another page", "text", 2.0, 0.1)],
            answers=[f"answer of {name}"] if place % 2 else [],
            status="ok" if place % 2 else "failed",
            error=None if place % 2 else "no answer was found",
            usage=Usage(10, 2, 10, 1, 1),
            detail={"kept": ["p1"], "calls": CALLS},
        )
        for place, text in enumerate(texts, 1)
    ]
    return Trace(question, "auto", route="complex", plan=plan or None, plan_source="model", nodes=nodes, answer="Lima")
