from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
import yaml
from click.testing import CliRunner

from data_gen.annotate.names import find_mention
from data_gen.annotate.validation import find_fault
from data_gen.build import build
from data_gen.config import SetConfig, load_config
from data_gen.leakage import KEPT_BACK, is_kept_back
from data_gen.questions import AnnotatedPassage, AnnotatedQuestion, AnnotatedStep
from data_gen.records import make_examples, make_records, make_sub_questions
from revelator.cli import revelator
from revelator.errors import ArtifactError, ConfigError, DataError
from revelator.fingerprints import FILE, Fingerprints, hash_question, normalise
from revelator.rows import SET, SPLITS, Row, find_plan_fault, stream_rows, verify_set
from revelator.tasks import TASKS


def configured(**fields) -> SetConfig:
    return SetConfig.model_validate({"name": "t", "sources": [{"format": "world", "path": "w"}], **fields})


@pytest.fixture
def compound() -> AnnotatedQuestion:
    parts = ("Where is Orn?", "Who leads Orn?")
    return AnnotatedQuestion(
        id="w:1",
        source="world",
        licence="CC0-1.0",
        split="train",
        question="Where is Orn and who leads it?",
        route="compound",
        parts=parts,
        steps=tuple(
            AnnotatedStep(part, (answer,), "Orn") for part, answer in zip(parts, ("north", "Una"), strict=True)
        ),
        answers=("north", "Una"),
        passages=(
            AnnotatedPassage("Orn", "Una leads Orn in the north.", True),
            AnnotatedPassage("Urn", "A vase.", False),
        ),
    )


def all_records(folder: Path) -> list[Row]:
    return [record for split in SPLITS for record in stream_rows(folder, split)]


def test_a_compound_question_gives_records_of_its_tasks(compound: AnnotatedQuestion) -> None:
    made = {(r.task, r.completion) for r in make_records(compound, configured(), compound.id)}
    assert made == {
        ("route", " compound"),
        ("decompose", ' ["Where is Orn?", "Who leads Orn?"]'),
        ("relevance", " yes"),
        ("relevance", " no"),
        ("end", " yes"),
        ("end", " no"),
        ("rewrite", " Where is Orn and who leads it?"),
        ("translate_bnf", " Where is Orn? + Who leads Orn?"),
    }


def test_refine_asks_for_every_next_step_and_end_says_when_to_stop(two_wiki: Path) -> None:
    from data_gen.sources.multi_hop import read_two_wiki

    question = next(iter(read_two_wiki(two_wiki)))
    refined = {example.input.steps: example.gold for example in make_examples(question, "refine", 1)}
    assert [gold for _, gold in sorted(refined.items(), key=lambda pair: len(pair[0]))] == [
        step.question for step in question.steps
    ]
    ended = {len(example.input.steps): example.gold for example in make_examples(question, "end", 1)}
    assert ended.pop(len(question.steps)) == "yes"
    assert list(ended.values()) == ["no"]


def test_relevance_is_balanced_and_agrees_with_the_supporting_facts(two_wiki: Path) -> None:
    from data_gen.sources.multi_hop import read_two_wiki

    question = next(iter(read_two_wiki(two_wiki)))
    made = make_examples(question, "relevance", 1)
    assert Counter(example.gold for example in made)["yes"] == len(made) / 2 > 0
    pages = {step.question: step.title for step in question.steps}
    for example in made:
        if example.gold == "yes" and example.input.question in pages:
            assert example.input.title == pages[example.input.question]
        if example.gold == "no":
            assert example.input.title == "Kiln"


def test_a_step_is_put_to_each_source_as_the_plan_has_it_and_as_a_loop_asks_it() -> None:
    row = {
        "id": "1", "source": "mine", "licence": "CC0-1.0", "split": "train", "route": "complex",
        "question": "Where was the director of UHF born?",
        "expression": "Who directed UHF? * Where was {director} born?",
        "steps": [
            {"question": "Who directed UHF?", "answers": ["Jay Levey"], "sources": ["films"]},
            {"question": "Where was Jay Levey born?", "answers": ["Ohio"], "sources": ["lives"]},
        ],
        "answers": ["Ohio"],
        "sources": [
            {"name": "films", "kind": "graph", "about": "films"}, {"name": "lives", "kind": "text", "about": "people"},
        ],
    }  # fmt: skip
    question = AnnotatedQuestion.from_json(row)
    made = [(e.input.question, e.input.name, e.gold) for e in make_examples(question, "select", 1)]
    right = {"Who directed UHF?": "films", "Where was {director} born?": "lives", "Where was Jay Levey born?": "lives"}
    assert sorted(made) == sorted((q, n, "yes" if right[q] == n else "no") for q in right for n in ("films", "lives"))
    assert [gold for _, _, gold in made] == ["yes", "no"] * 3
    lost = replace(question, sources=question.sources[:1])
    assert find_fault(lost, 0.5) == "a step's source is not listed"


def test_steps_of_a_complex_question_are_single_questions(two_wiki: Path) -> None:
    from data_gen.sources.multi_hop import read_two_wiki

    question = next(iter(read_two_wiki(two_wiki)))
    singles = make_sub_questions(question, 2, 1)
    assert len(singles) == 2 and {single.route for single in singles} == {"single"}
    made = {(r.task, r.completion) for single in singles for r in make_records(single, configured(), question.id)}
    for single in singles:
        assert ("translate_bnf", f" {single.question}") in made and ("refine", f" {single.question}") in made


@pytest.fixture
def config(musique: Path, two_wiki: Path, tmp_path: Path) -> Path:
    path = tmp_path / "set.yaml"
    sources = [{"format": "musique", "path": str(musique)}, {"format": "2wiki", "path": str(two_wiki)}]
    value = {"name": "tiny", "sources": sources, "split": {"dev": 0.3, "test": 0.2}}
    path.write_text(yaml.safe_dump(value), encoding="utf-8")
    return path


def test_what_is_written_reads_back_through_the_tasks(config: Path, tmp_path: Path) -> None:
    manifest = build(load_config(config), tmp_path / "set")
    made = all_records(tmp_path / "set")
    assert len(made) == sum(manifest["records"].values()) > 40
    assert len({record.id for record in made}) == len(made)
    assert {record.task for record in made} == set(TASKS) - {"translate_logic", "select", "read"}
    for record in made:
        task = TASKS[record.task]
        assert record.prompt_hash == task.prompt_hash
        typed, gold = task.parse(record.completion), json.loads(record.gold)
        assert typed == (task.parse(gold) if record.task.startswith("translate") else gold)
        names = json.loads(record.entities) if record.task.startswith("translate") else []
        assert all(find_mention(name, record.question) for name in names)
        assert bool(record.label) == bool(task.labels)
    counted = Counter((record.split, record.task) for record in made)
    assert {(s, t): n for s, tasks in manifest["counts"]["task"].items() for t, n in tasks.items()} == counted


def test_a_set_knows_the_questions_that_it_may_teach_and_none_of_dev_or_test(config: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        build(load_config(config), tmp_path / name)
    assert (tmp_path / "a" / FILE).read_bytes() == (tmp_path / "b" / FILE).read_bytes()
    seen = Fingerprints.read(tmp_path / "a", SET)
    asked: dict[str, set[str]] = {split: {r.question for r in stream_rows(tmp_path / "a", split)} for split in SPLITS}
    assert asked["train"] and all(map(seen.has_question, asked["train"]))
    assert asked["dev"] and asked["test"] and not any(map(seen.has_question, asked["dev"] | asked["test"]))
    steps = [json.loads(r.gold) for r in stream_rows(tmp_path / "a", "train") if r.task == "refine"]
    assert steps and all(map(seen.has_question, steps))
    assert not seen.unknown


def test_a_renamed_copy_is_known_by_its_original(config: Path, names: Path, tmp_path: Path) -> None:
    loaded = load_config(config)
    copied = SetConfig.model_validate({**loaded.model_dump(), "augment": {"copies": 2, "names": str(names)}})
    assert build(copied, tmp_path / "a")["records"] != build(loaded, tmp_path / "b")["records"]
    assert (tmp_path / "a" / FILE).read_bytes() == (tmp_path / "b" / FILE).read_bytes()


def test_a_composed_question_counts_with_those_that_it_was_made_from_and_is_dropped_with_them(tmp_path: Path) -> None:
    rows = [
        AnnotatedQuestion(
            name, "composed", "own", "train", f"Who taught the maker of {name}?", "complex",
            expression=f"Who made {name}? * Who taught {{person}}?", made_from=(f"who made the {name} of Ost",),
        )
        for name in ("Marn", "Orn")
    ]  # fmt: skip
    (tmp_path / "w.jsonl").write_text("".join(json.dumps(row.to_json()) + "\n" for row in rows))
    (tmp_path / "held.sha256").write_text(f"{hash_question('Who made the Orn of Ost?')}  secret-test\n")
    source = {"format": "world", "path": str(tmp_path / "w.jsonl")}
    made = build(configured(sources=[source], held_out=str(tmp_path / "held.sha256")), tmp_path / "set")
    seen = Fingerprints.read(tmp_path / "set", SET)
    assert seen.has_question("Who made the Marn of Ost?") and seen.has_question("Who made Marn?")
    assert made["dropped"] == {"held out (secret-test)": 1} and not seen.has_question("Who made Orn?")


def test_a_share_of_the_questions_is_in_no_split_and_in_no_fingerprint(config: Path, tmp_path: Path) -> None:
    whole = build(load_config(config), tmp_path / "whole")
    kept = SetConfig.model_validate({**load_config(config).model_dump(), "keep_back": 0.4})
    made = build(kept, tmp_path / "kept")
    asked = {record.question for record in all_records(tmp_path / "kept")}
    left = {record.question for record in all_records(tmp_path / "whole")} - asked
    assert any(is_kept_back(question, 0.4) for question in left)
    assert not any(is_kept_back(question, 0.4) for question in asked)
    assert made["dropped"][KEPT_BACK] > whole["dropped"].get(KEPT_BACK, 0) == 0


def test_no_question_stands_in_two_splits(config: Path, tmp_path: Path) -> None:
    build(load_config(config), tmp_path / "set")
    splits: dict[str, set[str]] = {}
    for record in all_records(tmp_path / "set"):
        for key in (record.group, normalise(record.question)):
            splits.setdefault(key, set()).add(record.split)
    assert splits and all(len(found) == 1 for found in splits.values())


def test_the_same_inputs_give_the_same_digest_and_another_seed_another(config: Path, tmp_path: Path) -> None:
    loaded = load_config(config)
    first, second = build(loaded, tmp_path / "a"), build(loaded, tmp_path / "b")
    other = build(loaded.model_copy(update={"seed": 14}), tmp_path / "c")
    assert first["digest"] == second["digest"] != other["digest"]
    assert (tmp_path / "a/README.md").read_bytes() == (tmp_path / "b/README.md").read_bytes()


def test_a_held_out_question_and_one_whose_step_is_held_out_are_dropped(config: Path, tmp_path: Path) -> None:
    held = tmp_path / "held_out.sha256"
    texts = ["are orn fell and LAKE SEDGE located in the same country", "who is odo of marn s father"]
    held.write_text("".join(f"{hash_question(text)}  secret-test\n" for text in texts), encoding="utf-8")
    loaded = load_config(config)
    before = build(loaded, tmp_path / "a")
    after = build(loaded.model_copy(update={"held_out": str(held)}), tmp_path / "b")
    assert after["dropped"]["held out (secret-test)"] == 2
    groups = {record.group for record in all_records(tmp_path / "b")}
    assert not groups & {"2wiki:c1", "2wiki:i1"}
    assert sum(before["questions"]["train"].values()) > 0
    assert "held out (secret-test): 2" in (tmp_path / "b/README.md").read_text(encoding="utf-8")

    for folder, leaked in (("a", True), ("b", False)):
        command = ["data", "inspect", str(tmp_path / folder), "--held-out", str(held), "--json"]
        result = CliRunner().invoke(revelator, command)
        found = json.loads(result.stdout)["found"]
        assert (result.exit_code, bool(found)) == (int(leaked), leaked)
        assert {hash_question(leak["text"]) for leak in found} == {hash_question(text) for text in texts if leaked}


def test_a_plan_without_steps_whose_leaf_is_held_out_is_dropped(tmp_path: Path) -> None:
    asked = {"Marn": "Who wrote Marn? * Who is the wife of {writer}?", "Orn": "Who made Orn? * Who taught {person}?"}
    rows = [
        AnnotatedQuestion(name, "self", "own", "train", f"Who was near to {name}?", "complex", expression=plan)
        for name, plan in asked.items()
    ]
    (tmp_path / "w.jsonl").write_text("".join(json.dumps(row.to_json()) + "\n" for row in rows))
    (tmp_path / "held.sha256").write_text(f"{hash_question('who wrote MARN')}  secret-test\n")
    source = {"format": "world", "path": str(tmp_path / "w.jsonl"), "sub_questions": 0}
    made = build(configured(sources=[source], held_out=str(tmp_path / "held.sha256")), tmp_path / "set")
    assert made["dropped"] == {"held out (secret-test)": 1}
    assert {record.group for record in all_records(tmp_path / "set")} == {"Orn"}


def test_repeated_questions_are_dropped_and_counted(write, two_wiki_rows, tmp_path: Path) -> None:
    again = {**two_wiki_rows[1], "_id": "c2", "question": two_wiki_rows[1]["question"].upper()}
    path = write("w.jsonl", [*two_wiki_rows, again, two_wiki_rows[1]])
    manifest = build(configured(sources=[{"format": "2wiki", "path": str(path)}]), tmp_path / "set")
    assert manifest["dropped"]["question seen before"] == 1
    assert manifest["dropped"]["id seen before"] == 1


def test_plans_that_do_not_replay_and_passages_that_contradict_go(write, two_wiki_rows, tmp_path: Path) -> None:
    wrong_answer = {**two_wiki_rows[3], "answer": "Elsewhere"}
    unmarked = {**two_wiki_rows[0], "context": two_wiki_rows[0]["context"][:3]}
    path = write("w.jsonl", [two_wiki_rows[1], wrong_answer, unmarked])
    manifest = build(configured(sources=[{"format": "2wiki", "path": str(path)}]), tmp_path / "set")
    assert manifest["dropped"] == {"a step's page is not marked relevant": 1, "steps do not reach the answer": 1}


@pytest.fixture
def names(tmp_path: Path) -> Path:
    path = tmp_path / "names.txt"
    path.write_text("\n".join(f"{a}{b} {c}" for a in "BDGKLMNP" for b in "aeiou" for c in ("Ost", "Ulm", "Ira")))
    return path


def test_renamed_copies_train_structure_and_never_reach_dev(config: Path, names: Path, tmp_path: Path) -> None:
    loaded = load_config(config).model_copy(update={"split": configured(split={"dev": 0.5}).split})
    loaded = SetConfig.model_validate({**loaded.model_dump(), "augment": {"copies": 2, "names": str(names)}})
    build(loaded, tmp_path / "set")
    copies = [record for record in all_records(tmp_path / "set") if "/names" in record.id]
    assert copies and {record.split for record in copies} == {"train"}
    known = set(names.read_text().splitlines())
    plans = [record for record in copies if record.task == "translate_bnf"]
    assert plans and all(any(name in r.question and name in r.completion for name in known) for r in plans)


def test_renamed_copies_are_asked_in_other_words_and_the_rest_as_published(
    config: Path, names: Path, tmp_path: Path
) -> None:
    plans = []
    for share in (0.0, 1.0):
        augment = {"copies": 8, "names": str(names), "reworded": share}
        loaded = SetConfig.model_validate({**load_config(config).model_dump(), "augment": augment})
        build(loaded, tmp_path / f"set{share}")
        rows = [row for row in all_records(tmp_path / f"set{share}") if row.task == "translate_bnf"]
        plans.append({row.id: (row.question, row.completion) for row in rows})
    before, after = plans
    changed = [identity for identity in after if after[identity] != before[identity]]
    assert changed and all("/names" in identity for identity in changed)
    assert all(after[identity][1] == before[identity][1] for identity in after)


def test_bounds_hold_records_back(config: Path, tmp_path: Path) -> None:
    loaded = load_config(config)
    tasks = {"refine": {"per_question": 1}, "route": {"share": 0.0}}
    build(SetConfig.model_validate({**loaded.model_dump(), "tasks": tasks}), tmp_path / "set")
    made = Counter((r.task, r.id.split("/refine")[0]) for r in all_records(tmp_path / "set"))
    assert not [key for key in made if key[0] == "route"]
    assert {count for (task, _), count in made.items() if task == "refine"} == {1}


def test_a_malformed_row_is_counted_and_named_on_the_command_line(write, two_wiki_rows, tmp_path: Path) -> None:
    path = write("w.jsonl", [two_wiki_rows[0], "{oops", two_wiki_rows[1]])
    config = tmp_path / "set.yaml"
    config.write_text(yaml.safe_dump({"name": "t", "sources": [{"format": "2wiki", "path": str(path)}]}))
    command = ["data", "build", str(config), "--out", str(tmp_path / "set"), "--json"]
    result = CliRunner(env={"COLUMNS": "400"}).invoke(revelator, command)
    assert result.exit_code == 0, result.output
    manifest = json.loads(result.stdout)
    assert manifest["dropped"]["malformed row"] == 1
    assert [(row["file"], row["line"]) for row in manifest["refused_rows"]] == [(str(path), 2)]
    assert "line 2" in result.stderr and "not JSON" in result.stderr


def test_a_place_that_holds_no_set_is_left_alone(config: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "manifest.json").write_text('{"kind": "world"}')
    for target in (mine, config):
        with pytest.raises(ConfigError, match="something stands there that is not an instruction set"):
            build(load_config(config), target)
    assert (mine / "manifest.json").read_text() == '{"kind": "world"}' and config.is_file()


def test_a_place_that_cannot_be_written_is_named(config: Path) -> None:
    ran = CliRunner().invoke(revelator, ["data", "build", str(config), "--out", str(config / "set")])
    assert isinstance(ran.exception, DataError) and ran.exception.where == str(config / "set")
    assert f"{config} is a file and stands in the way" in ran.exception.message and ran.exception.hint


def test_a_build_without_records_says_why(write, tmp_path: Path) -> None:
    rows = write("w.jsonl", [{"id": "a"}, {"id": "b"}])
    config = SetConfig.model_validate({"name": "t", "sources": [{"format": "musique", "path": str(rows)}]})
    with pytest.raises(DataError, match=r"malformed row: 2[\s\S]*line 2: field 'question' is missing"):
        build(config, tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_the_card_speaks_of_held_out_questions_where_they_were_named(config: Path, tmp_path: Path) -> None:
    held = tmp_path / "held_out.sha256"
    held.write_text(f"{hash_question('Who?')}  mine\n")
    for hashes, sentence in ((str(held), "held out for measuring (`"), (None, "names no questions that are held out")):
        build(load_config(config).model_copy(update={"held_out": hashes}), tmp_path / "set")
        assert sentence in (tmp_path / "set/README.md").read_text()


def test_a_broken_source_leaves_no_half_set_and_the_old_one_alone(config: Path, musique: Path, tmp_path: Path) -> None:
    loaded = load_config(config)
    digest = build(loaded, tmp_path / "set")["digest"]
    musique.write_bytes(musique.read_bytes()[:-40])
    for target in ("set", "new"):
        with pytest.raises(DataError, match="gzip stream is damaged"):
            build(loaded, tmp_path / target)
    assert SET.read_manifest(tmp_path / "set", verify=True)["digest"] == digest
    assert not (tmp_path / "new").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_set_with_a_changed_file_is_refused(config: Path, tmp_path: Path) -> None:
    build(load_config(config), tmp_path / "set")
    (tmp_path / "set/dev.parquet").write_bytes(b"")
    with pytest.raises(ArtifactError, match="has changed since it was built"):
        verify_set(tmp_path / "set")


SOURCES = {"name": "t", "sources": [{"format": "pairs", "path": "rows.csv"}]}
ENDPOINT = {"endpoint": {"url": "http://127.0.0.1:9/v1", "model": "m"}}


@pytest.mark.parametrize(
    ("fields", "options", "reason"),
    [
        (SOURCES | {"rows": "other"}, [], "must be one of reading, world, composed, collected, taught, compound"),
        (SOURCES | {"rows": ["taught"]}, [], "must be one of"),
        (SOURCES | ENDPOINT, [], "add `rows: taught`"),
        (SOURCES | {"names": "n.txt", "size": 4}, [], "add `rows: composed`"),
        ({"name": "t", "corpus": "c.jsonl"} | ENDPOINT, [], "add `rows: compound`"),
        (SOURCES | ENDPOINT | {"corpus": "c.jsonl"}, [], "there is no such field"),
        (SOURCES | ENDPOINT | {"rows": "taught", "corpus": "c.jsonl"}, [], "there is no such field"),
        (SOURCES | ENDPOINT | {"rows": "taught"}, ["--allow-single"], "is for instruction sets"),
        (SOURCES | {"rows": "composed", "names": "n.txt"}, ["--engine", "ray"], "is for instruction sets"),
    ],
)
def test_a_file_whose_kind_is_wrong_or_open_is_refused_with_the_reason(
    fields: dict[str, object], options: list[str], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(fields))
    ran = CliRunner().invoke(revelator, ["data", "build", str(path), "--out", str(tmp_path / "out"), *options])
    told = ran.stderr if ran.exit_code == 2 else str(ran.exception)
    assert ran.exit_code != 0 and reason in " ".join(told.split()) and not (tmp_path / "out").exists()


def test_inspect_shows_the_card_and_samples(config: Path, tmp_path: Path) -> None:
    build(load_config(config), tmp_path / "set")
    arguments = ["data", "inspect", str(tmp_path / "set")]
    shown = CliRunner().invoke(revelator, arguments)
    assert shown.exit_code == 0 and shown.stdout.count("Enough") >= 3
    words = " ".join(shown.stdout.split())
    for part in ("Instruction set tiny", "licence", "Apache-2.0", "(A + B) * C", "Left out", "Inputs", "name: tiny"):
        assert part in words
    assert "routes: complex" in words and "completion: median" in words
    machine = json.loads(CliRunner().invoke(revelator, [*arguments, "--json"]).stdout)
    assert sum(machine["routes"].values()) == machine["counts"]["task"]["train"]["route"]
    assert 0 < machine["lengths"]["end"]["completion"]["median"] < machine["lengths"]["end"]["prompt"]["longest"]
    assert [record["task"] for record in machine["samples"]["end"]] == ["end"] * 3
    assert machine["records"]["train"] == parquet.read_metadata(tmp_path / "set/train.parquet").num_rows


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": {"rank": {}}}, "unknown task rank"),
        ({"split": {"dev": 0.6, "test": 0.4}}, "must leave a share for train"),
        ({"seeds": 1}, "seeds"),
        ({"sources": [{"format": "csv", "path": "x"}]}, "sources.0.format"),
        ({"held_out": "${NOT_SET_ANYWHERE}/x"}, "NOT_SET_ANYWHERE is not set"),
    ],
)
def test_a_wrong_configuration_names_field_and_reason(config: Path, change: dict, message: str) -> None:
    config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), **change}), encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        load_config(config)


def test_a_fault_within_a_source_is_the_only_one_that_is_said(config: Path) -> None:
    sources = [{"format": "bogus", "path": "${NOT_SET_ANYWHERE}/x"}]
    config.write_text(yaml.safe_dump({"name": "t", "sources": sources}))
    with pytest.raises(ConfigError) as caught:
        load_config(config)
    first, second = sorted(line.strip() for line in caught.value.message.split("\n"))
    assert first.startswith("sources.0.format = 'bogus': ")
    assert second.endswith(": environment variable NOT_SET_ANYWHERE is not set") and "Value error" not in second
    config.write_text(yaml.safe_dump({"name": "t", "sources": []}))
    with pytest.raises(ConfigError, match=r": sources = \[\]: .* at least 1 item"):
        load_config(config)


def test_a_configuration_that_cannot_be_read_gets_a_hint(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("name: [t\n")
    (tmp_path / "deep.yaml").write_text("[" * 5000)
    (tmp_path / "long.yaml").write_text(f"seed: {'9' * 5000}\n")
    unread = {"none.yaml": "No such file", "broken.yaml": "not YAML", "deep.yaml": "not YAML", "long.yaml": "not YAML"}
    for name, message in unread.items():
        with pytest.raises(ConfigError, match=message) as caught:
            load_config(tmp_path / name)
        assert caught.value.hint


def test_every_shipped_configuration_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REVELATOR_WORLD", "runs/world")
    monkeypatch.setenv("REVELATOR_COLLECTED", "runs/collected")
    monkeypatch.setenv("REVELATOR_NAMES", "runs/names")
    monkeypatch.setenv("REVELATOR_DATA", "/data")
    configs = sorted(Path(__file__).parents[2].joinpath("data_gen/configs").glob("*.yaml"))
    assert configs
    for path in configs:
        assert load_config(path).sources


DATA = Path(os.environ.get("REVELATOR_DATA", "../shared/data"))


@pytest.mark.skipif(not (DATA / "held_out.sha256").is_file(), reason="needs the public data (REVELATOR_DATA)")
def test_the_published_files_give_valid_plans_for_nearly_every_question(tmp_path: Path) -> None:
    config = load_config(Path(__file__).parents[2] / "data_gen/configs/real.yaml").model_dump()
    sources = [{**source, "limit": 60} for source in config["sources"]]
    manifest = build(SetConfig.model_validate({**config, "sources": sources}), tmp_path / "set")
    meant = ("seen before", KEPT_BACK)  # the same question in two files, and what is left for measuring
    lost = sum(n for reason, n in manifest["dropped"].items() if not any(each in reason for each in meant))
    assert lost <= 0.03 * 60 * len(sources)
    assert not manifest["refused_rows"]
    shapes = {shape for counts in manifest["counts"]["shape"].values() for shape in counts}
    assert {"A", "A * B", "A + B => equal", "A * B + C * D => argmin", "(A + B) * C"} <= shapes


def test_the_row_that_the_documents_show_is_kept(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/your-data.md").read_text(encoding="utf-8")
    row = json.loads(page.split("```json\n")[1].split("```")[0])
    (tmp_path / "mine.jsonl").write_text(json.dumps(row) + "\n")
    config = configured(sources=[{"format": "world", "path": str(tmp_path / "mine.jsonl")}])
    manifest = build(config, tmp_path / "set")
    assert not manifest["dropped"]
    assert sum(manifest["questions"][split].get("mine", 0) for split in SPLITS) == 2


def write_pairs(folder: Path, *questions: str) -> Path:
    (folder / "faq.csv").write_text("question,answer\n" + "".join(f"{question},Ana\n" for question in questions))
    config = {"name": "mine", "sources": [{"format": "pairs", "path": str(folder / "faq.csv"), "name": "faq"}]}
    config["sources"][0]["licence"] = "own"
    (folder / "mine.yaml").write_text(yaml.safe_dump(config))
    return folder / "mine.yaml"


def test_pairs_alone_are_no_set_to_learn_planning_from_and_training_warns_of_one_that_was_built_all_the_same(
    tmp_path: Path,
) -> None:
    config, out = write_pairs(tmp_path, *(f"Who leads the town number {n}?" for n in range(30))), tmp_path / "set"
    call = ["data", "build", str(config), "--out", str(out)]
    with pytest.raises(DataError, match=r"no question of this set has several hops.*unlearns") as error:
        CliRunner().invoke(revelator, call, catch_exceptions=False)
    assert "--allow-single" in (error.value.hint or "") and not out.exists()
    assert CliRunner().invoke(revelator, [*call, "--allow-single"], catch_exceptions=False).exit_code == 0
    assert SET.read_manifest(out, verify=True)["counts"]["shape"]["train"].keys() == {"A"}
    home = str(tmp_path / "home")
    trained = CliRunner().invoke(revelator, ["train", "demo", "--set", str(out), "--base", "./none", "--home", home])
    assert "warning" in trained.stderr and "unlearns to plan" in trained.stderr


def test_plans_of_several_shapes_are_no_fault() -> None:
    assert find_plan_fault([]) is None and find_plan_fault(["A", "A * B"]) is None
    assert "A * B" in (find_plan_fault(["A * B"]) or "")


def test_the_configuration_to_copy_for_own_data_builds_from_a_clone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    manifest = build(load_config(Path("data_gen/configs/mine.yaml")), tmp_path / "set", allow_single=False)
    assert not manifest["dropped"] and manifest["records"]["train"] and manifest["records"]["dev"]
    assert len(manifest["counts"]["shape"]["train"]) > 1
