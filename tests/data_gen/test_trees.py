"""Gold trees: what becomes of a decomposition, and that each is one that a decoder can write."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from data_gen.annotate.trees import is_writable, read_call, render_tree
from data_gen.annotate.validation import check_tree
from data_gen.augment.substitution import substitute_names
from data_gen.build import build
from data_gen.config import SetConfig
from data_gen.questions import AnnotatedQuestion
from data_gen.records import make_sub_questions
from data_gen.sources.film_graph import read_metaqa
from data_gen.sources.multi_hop import read_break, read_musique, read_two_wiki
from data_gen.sources.rows import SkippedRow, read_world
from data_gen.world.generate import generate
from revelator.cli import revelator
from revelator.config import DATA_DEFAULT, DATA_VARIABLE
from revelator.plans.art import Art, check, draw_tree, number_nodes, parse, render
from revelator.plans.decoding import make_art_grammar
from revelator.plans.operators import Call, Filter, Relate, Search
from serving.knowledge.graph import GraphSource
from serving.knowledge.graph_store import GraphStore, build_graph
from serving.knowledge.sources import Sources
from serving.protocols import NoModel
from tests.serving.knowledge.toy_sources import run_tree_alone

DATA = Path(os.environ.get(DATA_VARIABLE, DATA_DEFAULT))


@pytest.fixture(scope="module")
def matcher() -> LLMatcher:
    return LLMatcher(LLTokenizer("byte"), make_art_grammar().text)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> list[AnnotatedQuestion]:
    folder = tmp_path_factory.mktemp("world") / "w"
    generate(400, 3, folder)
    return questions(list(read_world(folder)))


def questions(rows: list[object]) -> list[AnnotatedQuestion]:
    return [row for row in rows if isinstance(row, AnnotatedQuestion)]


def accepted(matcher: LLMatcher, text: str) -> bool:
    walk = matcher.deep_copy()
    return walk.consume_tokens(LLTokenizer("byte").tokenize_str(f" {text}")) and walk.is_accepting()


def drawn(question: AnnotatedQuestion) -> list[str]:
    """The nodes below the root, one a line."""
    return [line[3:] for line in draw_tree(parse(question.tree)).splitlines()[1:]]


def test_a_relation_is_a_step_along_it_and_free_words_are_the_step_that_they_ask_for(musique: Path) -> None:
    one, two = questions(list(read_musique(musique)))
    assert drawn(one) == [
        '1 Which company distributed the film Tin Comet?  Relate("Tin Comet", "distributed by")',
        '2 Who founded [1]?  Relate("[1]", "founded by")',
    ]
    assert drawn(two) == [
        '1 Who made the Plover?  Relate("Plover", "made")',
        '2 Which company owns Bexley Gin?  Relate("Bexley Gin", "owned by")',
        '3 When did [1] and [2] merge?  Relate("[1]", "[2] merge")',
    ]


def test_a_comparison_ends_in_a_node_that_names_what_is_compared(two_wiki: Path) -> None:
    bridge, country, grandfather, _ = map(drawn, questions(list(read_two_wiki(two_wiki))))
    assert bridge[1].startswith("2 When was [1] born?") and bridge[3].startswith("4 When was [3] born?")
    assert bridge[4] == "5 Which has the least value, Salt Road ([2]) or The Blue Kiln (1934 Film) ([4])?  => argmin"
    assert country[2] == "3 Are these the same: [1], [2]?  => equal"
    assert [line.partition("  ")[2] for line in grandfather] == [
        'Relate("Odo Of Marn", "father")',
        'Relate("[1]", "father")',
    ]


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("Who is Ada Quill?", Search("Ada Quill")),
        ("When did the Reign of Terror end?", Relate("Reign of Terror", "end")),
        ("What is [1]'s largest city?", Relate("[1]", "largest city")),
        ("Who has the most points in a season?", Search("most points in a season")),
        ("When did [2] last beat [1]?", Relate("[2]", "last beat [1]")),
        ("What is it?", Search("What is it?")),
    ],
)
def test_free_words_call_for_an_operator(text: str, call: Call) -> None:
    assert read_call(text) == call


def test_every_kind_of_question_of_the_world_has_a_tree_that_can_be_written(
    world: list[AnnotatedQuestion], matcher: LLMatcher
) -> None:
    asked = [question for question in world if "[" not in question.question]
    for question in asked:
        art = parse(question.tree)
        assert check(art) == () and render(art) == question.tree and art.question == question.question
        assert accepted(matcher, question.tree)
        assert check_tree(question) is None
    ends = {question.ending.split(" ")[0]: number_nodes(parse(question.tree))[-1].node for question in asked}
    assert {name for name, node in ends.items() if not node.is_direct} == {"none", "list", "both"}
    counts = [parse(question.tree) for question in asked if question.ending.startswith("count_")]
    assert counts and all(isinstance(art.children[-2].call, Filter) for art in counts)


def test_a_world_for_operators_has_each_of_them_in_a_tenth_of_its_nodes(tmp_path: Path, matcher: LLMatcher) -> None:
    generate(400, 3, tmp_path / "w", operators=True)
    asked = [question for question in questions(list(read_world(tmp_path / "w"))) if question.tree]
    assert len(asked) > 380 and all(check_tree(question) is None for question in asked)
    assert all(accepted(matcher, question.tree) for question in asked)
    nodes = [at for question in asked for at in number_nodes(parse(question.tree)) if not at.children]
    shares = Counter(type(at.node.call) if at.node.call else "drawn" for at in nodes)
    assert all(shares[operator] > 0.1 * len(nodes) for operator in (Search, Relate, Filter, "drawn"))
    assert any(at.children for question in asked for at in number_nodes(parse(question.tree))[1:])


def test_inspect_shows_the_shares_of_operators_of_a_set(tmp_path: Path) -> None:
    generate(60, 3, tmp_path / "w", operators=True)
    source = {"format": "world", "path": str(tmp_path / "w"), "tasks": ["translate_art"]}
    build(SetConfig.model_validate({"name": "t", "sources": [source]}), tmp_path / "set")
    found = CliRunner().invoke(revelator, ["data", "inspect", str(tmp_path / "set"), "--json"])
    operators = json.loads(found.stdout)["operators"]
    assert {"Search", "Relate", "Filter", "count", "equal"} <= set(operators) and sum(operators.values()) > 60
    shown = CliRunner().invoke(revelator, ["data", "inspect", str(tmp_path / "set")]).stdout
    assert f"operators of {sum(operators.values())} nodes: Relate 0." in " ".join(shown.split())


async def test_trees_of_a_world_over_its_graph_give_the_gold_answers(tmp_path: Path) -> None:
    generate(300, 3, tmp_path / "w", operators=True)
    build_graph([tmp_path / "w" / "triples.tsv"], tmp_path / "graph")
    asked = [question for question in questions(list(read_world(tmp_path / "w"))) if question.tree][:120]
    sources = Sources([GraphSource(GraphStore(tmp_path / "graph"))])
    traces = [await run_tree_alone(parse(question.tree), sources, NoModel()) for question in asked]
    right = [set(trace.answers) == set(question.answers) for trace, question in zip(traces, asked, strict=True)]
    assert sum(right) > 0.9 * len(asked)


def test_a_question_of_metaqa_has_the_path_through_its_graph_that_gives_its_answers(tmp_path: Path) -> None:
    facts = [
        "Ost\tdirected_by\tAda",
        "Brin\tdirected_by\tAda",
        "Cal\tdirected_by\tAda",
        "Brin\twritten_by\tAda",
        "Ost\trelease_year\t1970",
    ]
    with gzip.open(tmp_path / "kb.tsv.gz", "wt") as file:
        file.write("\n".join(facts))
    rows = [
        ("who directed [Ost]", ["Ada"]),
        ("who directed [Brin]", ["Ada"]),  # written by her, too
        ("which films have the same director of [Ost]", ["Brin", "Cal"]),
        ("when were the films directed by [Ada] released", ["1970", "1981"]),  # the graph lacks one
        ("when were the films directed by [Ada] shown", ["1970"]),
    ]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps({"question": q, "answers": a}) + "\n" for q, a in rows))
    one, two, same, *skipped = read_metaqa(tmp_path / "q.jsonl")
    assert [parse(one.tree).call, parse(two.tree).call] == [Relate("Ost", "directed by"), Relate("Brin", "directed by")]
    assert (one.question, one.route, same.route) == ("who directed Ost", "single", "complex")
    assert drawn(same) == [
        '1 Who directed Ost?  Relate("Ost", "directed by")',
        '2 Which films did [1] direct?  Relate("[1]", ^"directed by")',
        '3 Which of [2] are not Ost?  Filter(["[2]"], "other than Ost")',
    ]
    assert isinstance(skipped[0], SkippedRow) and drawn(skipped[1])[1] == (
        '2 When was [1] released?  Relate("[1]", "release year")'
    )


def test_a_filter_step_of_break_is_a_filter(tmp_path: Path) -> None:
    steps = "return films of Ada ;return #1 that were shown in Orn before the war ;return the years of #2"
    row = {"question_id": "CWQ_1", "question_text": "When were Ada films shown in Orn?", "decomposition": steps}
    row["operators"] = "['select', 'filter', 'project']"
    (tmp_path / "b.jsonl").write_text(json.dumps(row))
    [question] = questions(list(read_break(tmp_path / "b.jsonl")))
    assert [parse(question.tree).children[1].call] == [Filter(("[1]",), "were shown in Orn before the war")]


def test_real_gold_trees_can_be_written(matcher: LLMatcher) -> None:
    if not (DATA / "musique").is_dir():
        pytest.skip("the published files are not at ../shared/data")
    musique = questions(list(islice(read_musique(DATA / "musique" / "musique_decomposed.jsonl.gz"), 1500)))
    wiki = questions(list(islice(read_two_wiki(DATA / "2wikimultihopqa" / "2wiki_evidences.jsonl.gz"), 1500)))
    have = Counter(question.source for question in [*musique, *wiki] if question.tree)
    assert have["musique"] > 0.99 * len(musique) and have["2wiki"] > 0.98 * len(wiki)
    for question in filter(lambda each: each.tree, [*musique[::10], *wiki[::10]]):
        assert accepted(matcher, question.tree) and check_tree(question) is None


def test_a_step_asked_on_its_own_is_one_node(musique: Path) -> None:
    [question, _] = questions(list(read_musique(musique)))
    singles = {single.question: parse(single.tree) for single in make_sub_questions(question, 2, 0)}
    assert singles == {
        (asked := "Which company distributed the film Tin Comet?"): Art(asked, Relate("Tin Comet", "distributed by")),
        (asked := "Who founded Harrow Pictures?"): Art(asked, Relate("Harrow Pictures", "founded by")),
    }


@given(st.permutations(["Una Vale", "The Reed", "Kiln 9", "Marn & Co.", "Ost (band)"]), st.integers())
def test_new_names_stand_in_the_tree_as_in_question_and_plan(pool: list[str], seed: int) -> None:
    asked = "Which film was first, Salt Road or Ember Lane?"
    nodes = [Art("When was Salt Road released?", Relate("Salt Road", "date")), Art("Is it [1]?", Search("Ember Lane"))]
    plan = "When was Salt Road released? + When was Ember Lane released?"
    names = ("Salt Road", "Ember Lane")
    question = AnnotatedQuestion("1", "s", "l", "train", asked, "complex", plan, entities=names)
    renamed = substitute_names(replace(question, tree=render_tree(asked, nodes)), pool, random.Random(seed))
    assert renamed is not None
    first, second = renamed.entities
    art = parse(renamed.tree)
    assert art.question == renamed.question and check_tree(renamed) is None
    assert art.children[0] == Art(f"When was {first} released?", Relate(first, "date"))
    assert art.children[1].call == Search(second)


TEXTS = st.text(st.sampled_from("ab [1]2\n"), min_size=1, max_size=12).filter(str.strip)
CALLS = st.one_of(
    st.builds(Search, TEXTS, TEXTS), st.builds(Relate, TEXTS, TEXTS), st.builds(Filter, st.tuples(TEXTS), TEXTS)
)
NODES = st.recursive(
    st.builds(Art, TEXTS, st.none() | CALLS),
    lambda inner: st.builds(Art, TEXTS, st.none(), st.lists(inner, min_size=1, max_size=3).map(tuple)),
    max_leaves=6,
)


@given(NODES)
def test_what_is_called_writable_is_what_the_grammar_accepts(matcher: LLMatcher, art: Art) -> None:
    assert is_writable(art) == accepted(matcher, render(art))


def test_a_text_that_no_decoder_can_write_gives_no_tree() -> None:
    assert render_tree("What is [sic]?", [Art("Who is Ada?", Search("Ada"))]) == ""
    assert check_tree(replace(WHOLE, tree='{"question": "a"}')) == "tree does not parse (way)"
    assert check_tree(replace(WHOLE, tree='{"question":"a", "direct": true}')) == "tree is not canonical"
    named = render(Art("a", children=(Art("b [1]", Search("c")),)))
    assert check_tree(replace(WHOLE, tree=named)) == "tree does not check (reference)"
    bracketed = render(Art("a [[1]]", Search("c")))
    assert check_tree(replace(WHOLE, tree=bracketed)) == "tree names what a decoder cannot"


WHOLE = AnnotatedQuestion("1", "s", "l", "train", "Who is Ada?", "single", "Who is Ada?")
