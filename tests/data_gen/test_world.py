"""The synthetic world: what its files promise, and that its gold plans give its gold answers over its own triples."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from data_gen.questions import ENDINGS, AnnotatedQuestion, AnnotatedStep
from data_gen.world.generate import WorldConfig, generate
from data_gen.world.graph import load_relations
from data_gen.world.names import load_vocabulary
from data_gen.world.sources import blend
from data_gen.world.terms import AskedTerm, echo_wording
from evaluation.demo import MIXED
from revelator.cli import revelator
from revelator.config import read_config
from revelator.errors import ConfigError, DataError, RevelatorError
from revelator.files import sha256_file
from revelator.plans import Sequence, bind, check, list_leaves, list_placeholders, parse, render, substitute

SIZE = 700
VALUE = re.compile(r"[\d,]*\.?\d+")


class World:
    """A world read back from its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        lines = (folder / "questions.jsonl").read_text(encoding="utf-8").splitlines()
        self.questions = [AnnotatedQuestion.from_json(json.loads(line)) for line in lines]
        lines = (folder / "passages.jsonl").read_text(encoding="utf-8").splitlines()
        self.passages = [json.loads(line) for line in lines]
        self.triples: dict[tuple[str, str], list[str]] = defaultdict(list)
        for line in (folder / "triples.tsv").read_text(encoding="utf-8").splitlines():
            head, relation, tail = line.split("\t")
            self.triples[head, relation].append(tail)
        self.known: dict[str, list[str]] = {}
        self.text = {p["title"]: p["text"] for p in self.passages}
        self.manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))

    def routed(self, route: str) -> list[AnnotatedQuestion]:
        return [q for q in self.questions if q.route == route]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("world") / "w"
    generate(SIZE, 11, folder)
    return World(folder)


# ---- an executor over the triples, which knows the relations' questions and nothing of how plans were made


def _templates() -> Iterator[tuple[str, str, re.Pattern[str]]]:
    for relation in load_relations().values():
        for wording in (*relation.ask, *relation.one):
            escaped = re.escape(wording.question)
            for mark in "xy":
                escaped = escaped.replace(re.escape(f"{{{mark}}}"), f"(?P<{mark}>.+)")
            yield relation.id, wording.question.partition("{")[0], re.compile(escaped)


TEMPLATES = list(_templates())


def titles(name: str) -> list[str]:
    """The titles that a mention may stand for: itself, without an article, `the film X` for `X (film)`."""
    found = [name, name.removeprefix("the ")]
    if qualified := re.fullmatch(r"the (\w+) (.+)", name):
        found.append(f"{qualified[2]} ({qualified[1]})")
    return found


def answer(world: World, question: str) -> list[str]:
    """The values that the triples give for one question."""
    if question not in world.known:
        world.known[question] = next(_answers(world, question))
    return world.known[question]


def _answers(world: World, question: str) -> Iterator[list[str]]:
    for relation, start, pattern in TEMPLATES:
        if question.startswith(start) and (found := pattern.fullmatch(question)):
            for head in titles(found["x"]):
                for second in titles(found["y"]) if "y" in found.groupdict() else [None]:
                    key = (head, relation if second is None else f"{relation}[{second}]")
                    if key in world.triples:
                        yield world.triples[key]
    raise AssertionError(f"nothing answers {question!r}")


def run(world: World, expression: str) -> list[list[tuple[dict[str, str], str, list[str]]]]:
    """For each leaf: what was put in, the question asked, the values found."""
    tree = parse(expression)
    sources = bind(tree).sources
    done: list[list[tuple[dict[str, str], str, list[str]]]] = []
    for index, leaf in enumerate(list_leaves(tree)):
        names = list_placeholders(leaf.text)
        pools = [list(dict.fromkeys(v for _, _, vs in done[sources[index][n]] for v in vs)) for n in names]
        asked = [dict(zip(names, values, strict=True)) for values in product(*pools)]
        done.append([(v, q := substitute(leaf.text, v), answer(world, q)) for v in asked])
    return done


def last_leaves(expression: str) -> list[int]:
    """The index of the leaf in which each branch ends: the operands of the outermost (or the last inner) `+`."""
    tree = parse(expression)
    total = len(list_leaves(tree))
    if not isinstance(tree, Sequence) and hasattr(tree, "right") and isinstance(tree.right, Sequence):
        sizes, start = [len(list_leaves(i)) for i in tree.right.items], len(list_leaves(tree.left))
    elif isinstance(tree, Sequence):
        sizes, start = [len(list_leaves(i)) for i in tree.items], 0
    else:
        return [total - 1]
    ends = [start + sum(sizes[: i + 1]) - 1 for i in range(len(sizes))]
    return ends


def key(text: str) -> tuple[float, ...]:
    """An order over values as texts: dates by year, month and day, else the first number."""
    if dated := re.fullmatch(r"(?:(\d+) (\w+)|(\w+) (\d+),) (\d{4})", text):
        month = dated[2] or dated[3]
        number = [
            "January",
            "February",
            "March",
            "April",
            "May",
            "June",
            "July",
            "August",
            "September",
            "October",
            "November",
            "December",
        ].index(month)
        return (int(dated[5]), number, int(dated[1] or dated[4]))
    number = float(VALUE.search(text)[0].replace(",", ""))  # type: ignore[index]
    return (number * 1_000_000 if "million" in text else number,)


def conclude(world: World, question: AnnotatedQuestion) -> list[str]:
    """The answer that the ending draws from what the plan found."""
    done = run(world, question.expression)
    ending, _, argument = question.ending.partition(" ")
    ends = [done[i] for i in last_leaves(question.expression)]
    values = [[v for _, _, vs in end for v in vs] for end in ends]
    if ending in ("none", "list", "both"):
        return [v for branch in values for v in dict.fromkeys(branch)]
    if ending == "equal":
        return ["yes" if values[0] == values[1] else "no"]
    if ending == "difference":
        return [f"{abs(int(key(values[0][0])[0]) - int(key(values[1][0])[0])):,}"]
    if ending == "intersect":
        return [v for v in values[0] if v in values[1]]
    if ending == "count":
        return [str(len(set(values[0])))]
    if ending == "count_is":
        return [str(values[0].count(argument))]
    if ending == "count_after":
        return [str(sum(int(v) > int(argument) for v in values[0]))]
    assert ending.startswith("arg")
    best = min if "min" in ending else max
    if ending.endswith("_source"):
        firsts = [subject(done[i][0][1]) for i in _firsts(question.expression)]
        return [best(zip(firsts, values, strict=True), key=lambda p: key(p[1][0]))[0]]
    members = [(put, asked, vs) for end in ends for put, asked, vs in end]
    if ending.endswith("_count"):
        put, asked, _ = best(members, key=lambda m: len(m[2]))
    else:
        put, asked, _ = best(members, key=lambda m: key(m[2][0]))
    return [next(iter(put.values())) if put else subject(asked)]


def _firsts(expression: str) -> list[int]:
    tree = parse(expression)
    assert isinstance(tree, Sequence)
    sizes = [len(list_leaves(item)) for item in tree.items]
    return [sum(sizes[:i]) for i in range(len(sizes))]


def subject(question: str) -> str:
    found = [m["x"] for _, start, p in TEMPLATES if question.startswith(start) and (m := p.fullmatch(question))]
    return min(found, key=len)


def without_article(names: list[str]) -> list[str]:
    return [name.removeprefix("the ") for name in names]


# ---- laws


def test_every_gold_plan_run_over_the_triples_gives_the_gold_answer(world: World) -> None:
    for question in world.routed("complex") + world.routed("compound"):
        assert without_article(conclude(world, question)) == without_article(list(question.answers)), question.id


def test_the_steps_are_the_questions_that_the_plan_asks_in_executable_order(world: World) -> None:
    for question in world.routed("complex") + world.routed("compound"):
        asked = [(q, tuple(vs)) for leaf in run(world, question.expression) for _, q, vs in leaf]
        assert [(s.question, s.answers) for s in question.steps] == list(dict.fromkeys(asked)), question.id


def test_every_gold_plan_is_canonical_checks_and_binds_each_placeholder_to_a_leaf(world: World) -> None:
    for question in world.questions:
        if question.expression:
            tree = parse(question.expression)
            assert render(tree) == question.expression
            assert check(tree) == ()
            for leaf, source in zip(list_leaves(tree), bind(tree).sources, strict=True):
                assert set(list_placeholders(leaf.text)) == set(source)


def test_the_answer_of_every_step_stands_literally_in_one_sentence_of_the_relevant_passage_of_its_title(
    world: World,
) -> None:
    for question in world.questions:
        relevant = {p.title: p.text for p in question.passages if p.relevant}
        for step in question.steps:
            text = relevant[step.title]
            assert all(answer in text for answer in step.answers), (question.id, step)


def test_irrelevant_passages_state_no_step(world: World) -> None:
    for question in world.questions:
        for passage in (p for p in question.passages if not p.relevant):
            assert passage.title not in {s.title for s in question.steps}
            for step in question.steps:
                name = step.title.partition(" (")[0]
                assert not (name in passage.text and any(answer in passage.text for answer in step.answers))


def test_every_passage_of_a_question_is_a_passage_of_the_world(world: World) -> None:
    known = {p["id"]: (p["title"], p["text"]) for p in world.passages}
    for question in world.questions:
        assert all(known[p.id] == (p.title, p.text) for p in question.passages)


def test_the_document_of_an_entity_names_every_value_of_its_triples(world: World) -> None:
    for (head, _), tails in world.triples.items():
        assert all(tail in world.text[head] for tail in tails), head


def test_no_name_of_one_split_occurs_among_the_titles_or_values_of_another(world: World) -> None:
    names: dict[str, set[str]] = defaultdict(set)
    for passage in world.passages:
        names[passage["id"].split("-")[0]].add(re.sub(r" \([^()]*\)$", "", passage["title"]).lower())
    assert set(names) == {"train", "dev", "test"}
    for one, other in (("train", "dev"), ("train", "test"), ("dev", "test")):
        assert names[one].isdisjoint(names[other])
    for question in world.questions:
        assert all(p.id.startswith(f"{question.split}-") for p in question.passages)


def test_no_question_is_asked_twice(world: World) -> None:
    texts = Counter(" ".join(q.question.lower().split()).rstrip("?.") for q in world.questions)
    assert max(texts.values()) == 1


def test_splits_and_routes_have_their_shares(world: World) -> None:
    splits = Counter(q.split for q in world.questions)
    assert splits == {"train": SIZE * 8 // 10, "dev": SIZE // 10, "test": SIZE // 10}
    routes = Counter(q.route for q in world.questions)
    assert set(routes) == {"single", "compound", "complex"}
    assert all(count >= SIZE // 10 for count in routes.values())


def test_plans_have_more_than_twenty_shapes_with_parentheses_and_up_to_six_leaves(world: World) -> None:
    shapes = world.manifest["counts"]["shape"]
    assert len(shapes) >= 20
    wanted = {
        "A * B",
        "A * B * C",
        "A * B * C * D",
        "A + B",
        "A * B + C * D",
        "(A + B) * C",
        "(A * B + C) * D",
        "A * (B + C)",
        "A * (B + C) * D",
    }
    assert wanted <= set(shapes)
    counts = [len(list_leaves(parse(q.expression))) for q in world.routed("complex")]
    assert max(counts) == 6
    assert {q.ending.partition(" ")[0] for q in world.questions} <= set(ENDINGS)


def test_a_question_names_each_of_its_entities(world: World) -> None:
    for question in world.questions:
        assert all(name.lower() in question.question.lower() for name in question.entities), question.id


@pytest.mark.parametrize(
    ("relation", "said", "asked"),
    [
        ("birth date", "was born first", "When was {x} born?"),
        ("birth date", "is older", "When was {x} born?"),  # no word in common: the first
        ("birthplace", "Do {a} and {b} share a birthplace?", "What is the birthplace of {x}?"),
        ("birthplace", "Were {a} and {b} born in the same city?", "In which city was {x} born?"),
        ("children", "How many children does {x} have?", "Which children does {x} have?"),
    ],
)
def test_what_a_question_says_of_a_thing_decides_how_the_plan_asks_for_it(relation: str, said: str, asked: str) -> None:
    chosen = load_relations()[relation]
    drawn = [AskedTerm(chosen, wording, (), (), "") for wording in chosen.ask]
    assert {term.wording.question for term in echo_wording(drawn, said)} == {asked}


def test_a_question_of_the_same_words_about_other_names_has_the_same_plan(tmp_path: Path) -> None:
    """But for the few whose words leave open what kind of thing the name is."""
    generate(6_000, 11, tmp_path / "w", routes=["complex", "compound"])
    plans: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for question in World(tmp_path / "w").questions:
        assert question.expression is not None
        names = sorted(question.entities, key=question.question.find)
        asked, plan = question.question, question.expression.replace('"', "")
        for name in sorted(names, key=len, reverse=True):
            asked, plan = (text.replace(name, f"name {names.index(name)}") for text in (asked, plan))
        plans[question.ending.split()[0], asked][plan] += 1
    again: dict[str, Counter[bool]] = defaultdict(Counter)
    for (ending, _), counts in plans.items():
        if counts.total() > 1:
            again[ending] += Counter({True: max(counts.values()), False: counts.total() - max(counts.values())})
    assert {"equal", "difference", "argmin", "argmax", "argmin_count", "intersect", "count", "both"} <= set(again)
    assert all(counts[True] >= 0.95 * counts.total() for counts in again.values()), again


def test_the_parts_of_a_compound_question_are_its_plan(world: World) -> None:
    for question in world.routed("compound"):
        tree = parse(question.expression)
        assert isinstance(tree, Sequence)
        assert tuple(leaf.text for leaf in list_leaves(tree)) == question.parts
        assert 2 <= len(question.parts) <= 4


def test_a_single_question_is_its_own_plan_and_its_only_step(world: World) -> None:
    for question in world.routed("single"):
        assert [leaf.text for leaf in list_leaves(parse(question.expression))] == [question.question]
        assert [step.question for step in question.steps] == [question.question]


def test_no_leaf_answers_with_what_the_question_names(world: World) -> None:
    for question in world.routed("complex"):
        values = {answer for step in question.steps for answer in step.answers}
        assert values.isdisjoint(question.entities), question.id


def test_some_titles_share_a_name_and_are_told_apart_by_a_qualifier(world: World) -> None:
    names = Counter(p["title"].partition(" (")[0] for p in world.passages)
    assert sum(count > 1 for count in names.values()) >= 5
    assert len({p["title"] for p in world.passages}) == len(world.passages)


# ---- the command


def test_the_same_size_and_seed_give_the_same_bytes_and_another_seed_does_not(tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        generate(40, seed, tmp_path / name)
    for file in ("passages.jsonl", "triples.tsv", "questions.jsonl", "manifest.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
        assert (tmp_path / "a" / file).read_bytes() != (tmp_path / "c" / file).read_bytes()


def test_the_manifest_counts_what_is_there_and_knows_its_files(world: World) -> None:
    counts = world.manifest["counts"]
    assert world.manifest["size"] == len(world.questions) == sum(counts["split"].values())
    assert counts["route"] == Counter(q.route for q in world.questions)
    assert world.manifest["passages"] == len(world.passages)
    for name, digest in world.manifest["files"].items():
        assert sha256_file(world.folder / name) == digest


def test_a_folder_that_is_no_world_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not a world"):
        generate(20, 0, tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    (tmp_path / "notes.txt").unlink()
    for seed in (0, 1):
        generate(20, seed, tmp_path)
    assert json.loads((tmp_path / "manifest.json").read_text())["seed"] == 1


def test_a_world_that_is_too_small_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least 20"):
        generate(19, 0, tmp_path / "w")
    assert not (tmp_path / "w").exists()


def test_every_shipped_world_is_a_configuration() -> None:
    shipped = sorted(MIXED.parent.glob("*.yaml"))
    assert len(shipped) > 2 and all(read_config(path, WorldConfig).size >= 20 for path in shipped)


def test_a_set_has_no_size_to_change(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="size = 20: there is no such field"):
        CliRunner().invoke(
            revelator,
            ["data", "build", str(MIXED.parents[1] / "world.yaml"), "--size", "20", "--out", str(tmp_path / "s")],
            catch_exceptions=False,
        )


def test_what_is_refused_at_once_is_said_without_a_progress_bar(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = {"19": tmp_path / "w", "20": tmp_path / "file/deep/w"}
    for size, out in refused.items():
        ran = CliRunner().invoke(revelator, ["data", "build", str(MIXED), "--size", size, "--out", str(out)])
        assert isinstance(ran.exception, RevelatorError) and ran.exception.hint and ran.output == ""
    assert f"{tmp_path / 'file'} is a file and stands in the way" in str(ran.exception)


def test_the_command_prints_the_manifest_as_json(tmp_path: Path) -> None:
    changed = ["--size", "20", "--seed", "5"]
    ran = CliRunner().invoke(revelator, ["data", "build", str(MIXED), *changed, "--out", str(tmp_path / "w"), "--json"])
    assert ran.exit_code == 0
    assert json.loads(ran.stdout)["counts"]["split"] == {"dev": 2, "test": 2, "train": 16}


def test_compound_questions_come_alone_in_splits_of_any_size_that_share_no_entity(tmp_path: Path) -> None:
    config = tmp_path / "world.yaml"
    config.write_text("{rows: world, routes: [compound], size: 70, dev: 25, test: 5}")
    ran = CliRunner().invoke(
        revelator, ["data", "build", str(config), "--out", str(tmp_path / "w"), "--json"], catch_exceptions=False
    )
    counts = json.loads(ran.stdout)["counts"]
    assert counts["split"] == {"train": 40, "dev": 25, "test": 5} and counts["route"] == {"compound": 70}
    rows = [json.loads(line) for line in (tmp_path / "w/questions.jsonl").read_text().splitlines()]
    named = {split: {e for row in rows if row["split"] == split for e in row["entities"]} for split in counts["split"]}
    assert sum(map(len, named.values())) == len(set().union(*named.values()))
    with pytest.raises(ConfigError, match="leave questions for train"):
        generate(40, 0, tmp_path / "v", held_back={"dev": 20, "test": 20})


# ---- divided among three sources


@pytest.fixture(scope="module")
def divided(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Path]:
    folder = tmp_path_factory.mktemp("divided")
    generate(SIZE, 14, folder / "world", routes=["complex"])
    blend(folder / "world", folder / "blend")
    return World(folder / "world"), folder / "blend"


def read_documents(folder: Path) -> dict[str, dict[str, str]]:
    """By source and title, what it says of a thing: a passage, or lines of triples."""
    said: dict[str, dict[str, str]] = {source: {} for source in ("graph", "text", "web")}
    for line in (folder / "triples.tsv").read_text(encoding="utf-8").splitlines():
        head = line.split("\t")[0]
        said["graph"][head] = f"{said['graph'].get(head, '')}\n{line}"
    for source in ("text", "web"):
        rows = map(json.loads, (folder / f"{source}.jsonl").read_text(encoding="utf-8").splitlines())
        said[source] = {row["title"]: row["text"] for row in rows}
    return said


def test_a_thing_stands_in_one_two_or_three_sources_and_each_says_all_of_it(divided: tuple[World, Path]) -> None:
    world, folder = divided
    said = read_documents(folder)
    holders = {title: [source for source in said if title in said[source]] for title in world.text}
    assert set(Counter(map(len, holders.values()))) == {1, 2, 3}
    assert all(said[source][title] == world.text[title] for source in ("text", "web") for title in said[source])
    for (head, relation), tails in world.triples.items():
        assert [f"\n{head}\t{relation}\t{tail}" in said["graph"].get(head, "") for tail in tails] == [
            "graph" in holders[head]
        ] * len(tails)


def test_a_step_stands_in_the_sources_that_its_question_names_and_in_no_other(divided: tuple[World, Path]) -> None:
    world, folder = divided
    said, steps = read_documents(folder), {question.id: question.steps for question in world.questions}

    def is_said(source: str, step: AnnotatedStep, answer: str) -> bool:
        """Whether the document of one of the things of a step names both what it asks about and its answer."""
        things = [title for title in (*world.text, answer) if title in step.question or title in (step.title, answer)]
        texts = [f"{title} {said[source][title]}" for title in things if title in said[source]]
        return any(has_words(text, step.title.partition(" (")[0]) and has_words(text, answer) for text in texts)

    rows = [json.loads(line) for line in (folder / "questions.jsonl").open()]
    assert Counter(row["type"] for row in rows) == json.loads((folder / "manifest.json").read_text())["questions"]
    assert {row["type"] for row in rows} == {"graph-text", "graph-web", "text-web", "graph-text-web"}
    for row in rows:
        assert row["answer"] == list(steps[row["id"]][-1].answers)
        for step, named in zip(steps[row["id"]], row["sources"], strict=True):
            assert named == [source for source in said if all(is_said(source, step, one) for one in step.answers)]
        first, second = map(set, row["sources"])
        assert first and second and not first & second
        assert row["type"].split("-") == sorted(first | second)


def has_words(text: str, words: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(words)}(?!\w)", text) is not None


def test_a_world_too_small_to_be_divided_is_refused(tmp_path: Path) -> None:
    generate(20, 3, tmp_path / "world", routes=["single"])
    with pytest.raises(DataError, match="0 of 3 pairs"):
        blend(tmp_path / "world", tmp_path / "blend")
    assert not (tmp_path / "blend").exists()


def test_the_sources_of_a_division_say_what_they_hold_in_words_that_no_training_question_has(
    divided: tuple[World, Path],
) -> None:
    world, folder = divided
    there = yaml.safe_load((folder / "sources.yaml").read_text(encoding="utf-8"))["sources"]
    assert [source["name"] for source in there] == ["text", "graph", "web"]
    taught = {source.about for question in world.questions for source in question.sources}
    for thing in (words[-1] for words in load_vocabulary()["holdings"].values()):
        assert sum(thing in source["about"] for source in there) == 1
        assert not any(thing in about for about in taught)
