"""MetaQA (Zhang et al., 2018): questions about films, each with its topic in brackets and the list of its answers.

The data set has no plans, but its graph (`kb.tsv.gz`, in the folder of the questions) holds the answers. The tree of a
question is the path of one or two relations that leads from its topic to exactly its answers. Where several paths do,
or none, it is the one that does so for most questions of the same wording.
"""

from __future__ import annotations

import gzip
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

from data_gen.annotate.trees import render_tree
from data_gen.questions import AnnotatedQuestion, DroppedError
from data_gen.sources import fields
from data_gen.sources.rows import FAULTS, ReadResult, read_annotated
from revelator import plans
from revelator.errors import DataError
from revelator.plans.art import Art
from revelator.plans.operators import Filter, Relate
from revelator.row_files import read_rows

WORDINGS = {  # each relation of the graph as a question about a film, and as one about what a film is related to
    "directed_by": ("Who directed {}?", "Which films did {} direct?"),
    "written_by": ("Who wrote {}?", "Which films did {} write?"),
    "starred_actors": ("Who starred in {}?", "Which films did {} star in?"),
    "release_year": ("When was {} released?", "Which films were released in {}?"),
    "in_language": ("In which language is {}?", "Which films are in {}?"),
    "has_tags": ("By which words is {} described?", "Which films are described by {}?"),
    "has_genre": ("Of which genre is {}?", "Which films are of the genre {}?"),
    "has_imdb_rating": ("How is {} rated?", "Which films are rated {}?"),
    "has_imdb_votes": ("How many votes has {}?", "Which films have {} votes?"),
}
GRAPH = "kb.tsv.gz"  # head, relation, tail, separated by tabs
TOPIC = re.compile(r"\[(.+)\]")
Step = tuple[str, bool]  # a relation, and whether it is read from its tail to its head
RelationPath = tuple[Step, ...]
Edges = dict[str, dict[Step, set[str]]]  # where each step leads, by the name that it starts from


def read_metaqa(file: Path | str) -> Iterator[ReadResult]:
    """Single questions (one relation) and complex ones (two), each with its tree. Raises DataError where the graph is
    not beside the file."""
    edges = _read_graph(Path(file).parent / GRAPH)
    paths = _rank_paths(file, edges)

    def annotate(row: dict[str, Any]) -> AnnotatedQuestion:
        asked, wording, topic, answers = _read_question(row)
        if not paths[wording]:
            raise DroppedError("no path of the graph answers a question of this wording")
        exact = (path for path in paths[wording] if _find_answers(edges, topic, path) == answers)
        path = next(exact, paths[wording][0])  # the graph lacks some facts
        return AnnotatedQuestion(
            id=fields.make_id(row, "metaqa", asked, "id"),
            source="metaqa",
            licence="CC-BY-3.0",
            split="",
            question=asked,
            route="single" if len(path) == 1 else "complex",
            expression=plans.render(plans.Atomic(asked)) if len(path) == 1 else "",
            answers=tuple(sorted(answers)),
            entities=(topic,),
            tree=render_tree(asked, _build_nodes(asked, topic, path)),
        )

    return read_annotated(file, annotate)


def _read_question(row: dict[str, Any]) -> tuple[str, str, str, Set[str]]:
    """The question without brackets, its wording (the topic left out), its topic and its answers."""
    written = fields.read_question(row)
    if not (topic := TOPIC.search(written)):
        raise DataError("field 'question' must hold its topic in brackets")
    return written.replace(topic[0], topic[1]), written.replace(topic[0], "[]"), topic[1], {*row["answers"]}


def _read_graph(path: Path) -> Edges:
    if not path.is_file():
        raise DataError("the graph of MetaQA is not here", where=str(path), hint="put it beside the questions")
    edges: Edges = defaultdict(lambda: defaultdict(set))
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            head, relation, tail = line.rstrip("\n").split("\t")
            edges[head][relation, False].add(tail)
            edges[tail][relation, True].add(head)
    return edges


def _rank_paths(file: Path | str, edges: Edges) -> dict[str, list[RelationPath]]:
    """By wording: the paths that lead to the answers of its questions, those of most questions first."""
    counted: dict[str, Counter[RelationPath]] = defaultdict(Counter)
    for _, row in read_rows(str(file)):
        try:
            _, wording, topic, answers = _read_question(row)
        except FAULTS:
            continue  # it is refused, with its line, when it is annotated
        first = [(step,) for step in edges[topic]]
        paths = [
            *first,
            *((*path, step) for path in first for step in _list_steps(_follow_path(edges, topic, path), edges)),
        ]
        counted[wording].update(path for path in paths if _find_answers(edges, topic, path) == answers)
    return {wording: [path for path, _ in paths.most_common()] for wording, paths in counted.items()}


def _list_steps(names: Set[str], edges: Edges) -> list[Step]:
    return sorted({step for name in names for step in edges[name]})


def _find_answers(edges: Edges, topic: str, path: RelationPath) -> Set[str]:
    found = _follow_path(edges, topic, path)
    return found - {topic} if _turns_back(path) else found


def _follow_path(edges: Edges, topic: str, path: RelationPath) -> Set[str]:
    found = {topic}
    for step in path:
        found = {other for name in found for other in edges[name].get(step, ())}
    return found


def _turns_back(path: RelationPath) -> bool:
    """Whether a path goes back along the relation by which it came: then its topic is no answer."""
    return len(path) == 2 and path[0][0] == path[1][0] and path[0][1] != path[1][1]


def _build_nodes(asked: str, topic: str, path: RelationPath) -> list[Art]:
    if len(path) == 1:
        return [Art(asked, _build_relate(topic, path[0]))]
    nodes = [
        Art(WORDINGS[step[0]][step[1]].format(head), _build_relate(head, step))
        for head, step in zip((topic, "[1]"), path, strict=True)
    ]
    if _turns_back(path):
        nodes.append(Art(f"Which of [2] are not {topic}?", Filter(("[2]",), f"other than {topic}")))
    return nodes


def _build_relate(head: str, step: Step) -> Relate:
    relation, inverse = step
    return Relate(head, relation.replace("_", " "), inverse=True if inverse else None)
