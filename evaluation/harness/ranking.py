"""ITLR's template benchmark: each case of 32 logical templates ranks the documents of its pool; nDCG@10 (ITLR,
appendix H). The documents are those of the synthetic world, or real ones (`evaluation.harness.corpus_cases`). A run
needs an encoder, but no generator and no index.

In the world, labels hold by construction. A case takes three relations of one type of thing and a value for each: its
terms are the sentences that state them. Which of the three facts a document states is chosen, not judged: for each
combination of true and false terms an own document is written by the world's prose, stating the value where the term is
true and another value of the same kind where it is false. Positives are combinations that match the query, at most
three; hard negatives are combinations that do not match and differ from a matching one in exactly one term, at most
three. Only the documents of a case are ranked for it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from data_gen.sources.logic_questions import Truth, draw_combinations, fill_template, list_templates
from data_gen.world.documents import write_document
from data_gen.world.graph import Entity, Fact, Relation, WorldGraph, load_relations
from data_gen.world.populate import populate
from evaluation.harness.config import RankingConfig
from evaluation.harness.folder import NO_COST, Cost, QuestionRow
from evaluation.metrics.retrieval import compute_ndcg
from revelator.plans import logic
from revelator.plans.logic import And, Not, Query, Term
from serving.retrieval.embedders import Encoder
from serving.retrieval.logical_search import Operators, compose

KINDS = ("person", "film", "novel", "company", "city")
ENTITIES = 1500
DEEPEST = 10


@dataclass(frozen=True)
class Case:
    """A query, and the question that a person would ask for it.

    `relevant` holds the positions of matching documents, `pool` the positions of all that are ranked. `kind` groups
    cases: `template 3`. `reasoning` about the question is searched with in its place, at this `cost`.
    """

    id: str
    query: Query
    question: str
    kind: str
    relevant: frozenset[int]
    pool: tuple[int, ...]
    reasoning: str = ""
    cost: Cost = NO_COST


def say_query(query: Query, verb: str) -> str:
    """Spells a query of a template as a person would ask it: `documents saying that A and not saying that B, or saying
    that C`. The `verb` of a term that is no sentence is `about`."""
    return f"documents {_say(query, verb)}"


def _say(query: Query, verb: str) -> str:
    if isinstance(query, Term):
        return f"{verb} {query.text}"
    if isinstance(query, Not):
        return f"not {_say(query.operand, verb)}"
    return (" and " if isinstance(query, And) else ", or ").join(_say(part, verb) for part in query.operands)


@dataclass(frozen=True)
class LabelledCases:
    """Cases and the texts of all their documents, of which the first line is the title; a case's `pool` holds positions
    in `texts`."""

    cases: list[Case]
    texts: list[str]


Draw = Callable[
    [str], tuple[Query, list[tuple[str, bool]]] | None
]  # template → query, documents and whether they match


def fill_templates(name: str, sizes: Sequence[int], per_template: int, draw: Draw, verb: str) -> LabelledCases:
    """Makes at most `per_template` cases of each template of so many terms (of three there are 32). A template for
    which nothing more can be drawn has fewer."""
    cases: list[Case] = []
    texts: list[str] = []
    for number, template in enumerate(template for size in sizes for template in list_templates(size)):
        for _ in range(per_template):
            if (drawn := draw(template)) is None:
                break
            query, documents = drawn
            pool = tuple(range(len(texts), len(texts) + len(documents)))
            texts += [text for text, _ in documents]
            relevant = frozenset(place for place, (_, matches) in zip(pool, documents, strict=True) if matches)
            id, kind = f"{name}:{number}:{len(cases)}", f"template {number}"
            cases.append(Case(id, query, say_query(query, verb), kind, relevant, pool))
    return LabelledCases(cases, texts)


def make_world_cases(per_template: int, seed: int, sizes: Sequence[int] = (3,)) -> LabelledCases:
    """Makes cases of the world; the same arguments give the same cases."""
    rng = random.Random(f"logic/{seed}")
    graph = populate(ENTITIES, rng, set())

    def draw(template: str) -> tuple[Query, list[tuple[str, bool]]]:
        head, chosen = _draw_facts(graph, rng, template.count("{"))
        terms = [_write_sentence(relation, head, graph.text(fact.tail)) for relation, fact in chosen]
        query = fill_template(template, terms)
        positives, negatives = draw_combinations(query, rng)
        truths = [*((truth, True) for truth in positives), *((truth, False) for truth in negatives)]
        return query, [(_write_document(graph, head.type, chosen, truth, rng), matches) for truth, matches in truths]

    return fill_templates("itlr", sizes, per_template, draw, "saying that")


def _draw_facts(graph: WorldGraph, rng: random.Random, count: int) -> tuple[Entity, list[tuple[Relation, Fact]]]:
    """Draws an entity, and so many of its facts whose values are entities."""
    while True:
        head = rng.choice(graph.by_type[rng.choice(KINDS)])
        usable = [r for r in graph.facts[head.id] if _is_usable(load_relations()[r])]
        if len(usable) >= count:
            return head, [(load_relations()[r], graph.facts[head.id][r][0]) for r in rng.sample(usable, count)]


def _is_usable(relation: Relation) -> bool:
    return not (relation.second or relation.is_list or relation.is_value)


def _write_sentence(relation: Relation, head: Entity, value: str) -> str:
    """Writes the first wording of a relation with `the film` as its subject: a term as a person would write it."""
    text = next((say for say in relation.say if "{his}" not in say), relation.say[0])
    subject = f"the {head.type}"
    text = text.format_map({"x": subject, "x's": f"{subject}'s", "y": value, "his": "the"}).rstrip(".")
    return text[0].lower() + text[1:] if text.startswith("The ") else text


def _write_document(
    graph: WorldGraph, kind: str, chosen: list[tuple[Relation, Fact]], truth: Truth, rng: random.Random
) -> str:
    """Writes the text of another entity that states each fact's value, or another value if the fact must not hold."""
    entity = rng.choice(graph.by_type[kind])
    kept = graph.facts[entity.id]
    graph.facts[entity.id] = {
        relation.id: [fact._replace(head=entity.id) if true else _draw_other_value(graph, entity, fact, rng)]
        for (relation, fact), true in zip(chosen, truth, strict=True)
    }
    document = write_document(graph, entity, rng)
    graph.facts[entity.id] = kept
    return f"{document.title}\n{document.text}"


def _draw_other_value(graph: WorldGraph, entity: Entity, fact: Fact, rng: random.Random) -> Fact:
    assert isinstance(fact.tail, int)
    alike = graph.by_type[graph.entities[fact.tail].type]
    tail = rng.choice([e for e in alike if e.id not in (fact.tail, entity.id)])
    return Fact(entity.id, fact.relation, tail.id)


def rank(
    cases: Sequence[Case], texts: Sequence[str], config: RankingConfig, operators: Operators, benchmark: str
) -> Iterator[QuestionRow]:
    """Ranks the documents of each case and yields its row, which has no score where no document matches. `plain` ranks
    by the cosine of the whole question, `bright` by that of the reasoning about it, `logical` by the combined cosines
    of its terms, `random` by chance. Times exclude embedding."""
    encoder = Encoder(config.model, config.max_tokens)
    titles = [text.partition("\n")[0] for text in texts]
    matrix, vectors = encoder.encode_documents(list(texts)), encode_queries(cases, encoder)
    chance = np.random.default_rng(config.seed)

    def score_plain(case: Case) -> np.ndarray:
        return matrix[list(case.pool)] @ vectors[case.reasoning or case.question]

    def score_logically(case: Case) -> np.ndarray:
        documents = matrix[list(case.pool)]
        cosines = {term: np.maximum(documents @ vectors[term], 0) for term in logic.list_terms(case.query)}
        return compose(case.query, cosines, operators)

    ways: dict[str, Callable[[Case], np.ndarray]] = {
        "plain": score_plain,
        "bright": score_plain,
        "logical": score_logically,
        "random": lambda case: chance.random(len(case.pool)),
    }
    for case in cases:
        began = time.perf_counter()
        order = [case.pool[i] for i in np.argsort(-ways[config.way](case), kind="stable")]
        taken = time.perf_counter() - began
        yield QuestionRow(
            id=case.id,
            benchmark=benchmark,
            question=case.question,
            golds=(),
            status="answered",
            gold_plan=logic.render(case.query),
            terms=len(logic.list_terms(case.query)),
            negations=logic.count_negations(case.query),
            kind=case.kind,
            gold_titles=tuple(titles[i] for i in sorted(case.relevant)),
            retrieved=tuple(titles[i] for i in order[:DEEPEST]),
            scores={"ndcg@10": compute_ndcg(order, case.relevant)} if case.relevant else {},
            cost=replace(case.cost, retrievals=1, wall_s=case.cost.wall_s + taken, path_s=case.cost.path_s + taken),
        )


def encode_queries(cases: Sequence[Case], encoder: Encoder) -> dict[str, np.ndarray]:
    """Embeds each term, and each question or the reasoning about it."""
    texts = {text for case in cases for text in (*logic.list_terms(case.query), case.reasoning or case.question)}
    ordered = sorted(texts)
    return dict(zip(ordered, encoder.encode_queries(ordered), strict=True))
