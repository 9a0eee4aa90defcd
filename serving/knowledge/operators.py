"""From a node of a tree to what sources are asked: earlier answers put in, retrieval queries as in the paper.

`Search`: "name descriptor". `Relate`: its arguments joined, once a head. `Filter`: "entity condition", once an entity
(AtomR, section 3.1). Direct RAG: the sub-question itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from revelator.files import sha256_text
from revelator.plans.art import Art, Call, Filter, Relate, Search, substitute, substitute_each
from revelator.trace import Passage
from serving.knowledge.source import Query
from serving.retrieval import terms

OVERLAP = 0.5  # t: entities whose passages share less with the query are dropped (section 4.1.4)
PASSAGES = 3  # k: passages a query and source (section 4.1.4)
FAN_OUT = 64  # queries of one node that sources are searched with by words

Ids = Mapping[str, Mapping[str, tuple[str, ...]]]


def query_of(node: Art, answers: Mapping[int, Sequence[str]], ids: Ids) -> Query:
    """The query of an operator node; `answers` are those of the nodes that it names."""
    question = substitute(node.question, answers)
    match node.call:
        case Search(name, descriptor):
            call: Call = Search(substitute(name, answers), substitute(descriptor, answers))
            return Query(question, node.question, (_joined(*call.texts),), call, (call.texts[0],), ids)
        case Relate(head, to, inverse):
            heads, target = substitute_each(head, answers), substitute(to, answers)
            texts = tuple(_joined(one, target) for one in heads[:FAN_OUT])
            return Query(question, node.question, texts, Relate(", ".join(heads), target, inverse), heads, ids)
        case Filter(entities, condition):
            kept = tuple(dict.fromkeys(value for entity in entities for value in substitute_each(entity, answers)))
            call = Filter(kept, substitute(condition, answers))
            texts = tuple(_joined(one, call.condition) for one in kept[:FAN_OUT])
            return Query(question, node.question, texts, call, kept, ids)
    return direct_query(question, node.question)


def key_of(query: Query) -> str:
    """A digest of what an operator is called with: sub-question, arguments, and who its entities are."""
    who = [(source, name, tuple(ids[name])) for source, ids in query.ids.items() for name in query.heads if name in ids]
    return sha256_text(repr((query.question, query.call, query.heads, sorted(who))))


def direct_query(question: str, template: str | None = None) -> Query:
    """Direct RAG: the sub-question as it stands; `template` is given where earlier answers were put into it."""
    return Query(question, template or question, (question,))


def overlap(query: str, passages: Sequence[Passage]) -> float:
    """`|q ∩ p| / min(|q|, |p|)` over the stems of query and passages, stop words left out; 0 when either has none."""
    asked = set(terms(query))
    said = {term for passage in passages for term in terms(f"{passage.title} {passage.text}")}
    return len(asked & said) / min(len(asked), len(said)) if asked and said else 0.0


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)
