"""What the models of a run have seen in training is found by every road, shown beside the figures, and left out."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from data_gen.questions import AnnotatedPassage, AnnotatedQuestion, AnnotatedStep
from evaluation.harness.config import RunConfig
from evaluation.harness.folder import QUESTIONS, read_metrics, read_questions, read_run
from evaluation.harness.trained_models import list_models
from evaluation.report.command import report
from evaluation.report.runs import conclude, load_run_folders
from evaluation.run import evaluate
from evaluation.seen import READER_NAME, SeenCount, TrainedModel, find_seen, find_seen_question, list_unknown
from revelator.artifact import ADAPTER, BASE, EMBEDDED_READER
from revelator.errors import ArtifactError, ConfigError
from revelator.fingerprints import FILE, Fingerprints, fingerprint
from revelator.folders import MANIFEST, FolderKind
from revelator.reading import READER
from serving.retrieval.index_folder import INDEX, IndexSettings
from tests.evaluation.report_runs import write_runs
from tests.serving.toy_model import write_adapter

DIRECTED, BORN, FOUNDED = "Who directed Lantern Row?", "Where was Ines Calloway born?", "When was Port Velm founded?"
PARAPHRASE = "By whom was Lantern Row directed?"
OWN = {
    DIRECTED: {"answer": "Ines Calloway"},
    BORN: {"answer": "Port Velm"},
    FOUNDED: {"answer": "1402", "titles": "Port Velm"},
    PARAPHRASE: {"answer": "Ines Calloway"},
}


def teach(folder: Path, kind: FolderKind, seen: Fingerprints) -> None:
    """Writes down what a model was trained on; its manifest is written anew."""
    seen.write(folder)
    kind.write_manifest(folder, kind.find_manifest(folder))


@pytest.fixture(scope="module")
def models(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base that was trained on one question, and an adapter over it that was trained on another."""
    folder = tmp_path_factory.mktemp("models")
    shutil.copytree(base, folder / "small")
    teach(folder / "small", BASE, Fingerprints.of([DIRECTED]))
    write_adapter(folder / "mine", folder / "small", 1)
    teach(folder / "mine", ADAPTER, Fingerprints.of([BORN.upper()]))
    return folder


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The embedded reader, which learned to read from the article Port Velm."""
    folder = tmp_path / "reader"
    folder.mkdir()
    for file in EMBEDDED_READER.iterdir():
        if file.name not in (FILE, MANIFEST):
            (folder / file.name).symlink_to(file)
    READER.write_manifest(folder, READER.read_manifest(EMBEDDED_READER))
    teach(folder, READER, Fingerprints.of(titles=["Port Velm"]))
    monkeypatch.setattr("evaluation.seen.EMBEDDED_READER", folder)
    return folder


def write_config(folder: Path, models: Path, index: Path, **runs: dict[str, Any]) -> Path:
    rows = [{"id": question[:12], "question": question, **values} for question, values in OWN.items()]
    (folder / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = {
        "benchmark": {"format": "own", "path": str(folder / "qa.jsonl"), "name": "qa"},
        "index": str(index),
        "base": str(models / "small"),
        "runs": runs,
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(made, sort_keys=False))
    return folder / "run.yaml"


def ask(config: Path, *arguments: str) -> str:
    asked = [str(config), "--out", str(config.parent / "out"), *arguments]
    return CliRunner().invoke(evaluate, asked, catch_exceptions=False).output


PLAIN = {"system": {"baseline": "naive-5"}}


def test_each_row_each_figure_and_the_comparison_say_what_was_seen(
    tmp_path: Path, models: Path, reader: Path, index: Path
) -> None:
    adapted = {"system": {"strategy": "single"}, "adapter": str(models / "mine")}
    config = write_config(tmp_path, models, index, plain=PLAIN, adapted=adapted)
    lines = [json.loads(line) for line in ask(config, "--json").splitlines() if line.startswith("{")]
    assert [line["seen"]["count"] for line in lines[:2]] == [1, 3] and lines[1]["unknown"] == []
    assert lines[2]["systems"][1]["seen"] == {"count": 3, "n": 4, "by_model": {"mine": 2, READER_NAME: 1}}
    warning = f"Warning: questions were seen in training, which flatters: naive-5 1 of 4 ({READER_NAME} 1)"
    assert f"{warning}; single 3 of 4 ({READER_NAME} 1, mine 2)." in lines[2]["says"]
    rows = read_questions(tmp_path / "out" / "adapted")
    assert [row.seen for row in rows] == [{"mine": "question"}, {"mine": "question"}, {READER_NAME: "article"}, {}]
    assert "seen" in read_metrics(tmp_path / "out" / "plain")
    assert [*read_run(tmp_path / "out" / "adapted").fingerprints] == ["mine", "reader", "small"]
    shown = ask(config)
    assert "seen: 1 of 4" in shown and "seen: 3 of 4" in shown and "Warning" in shown
    page = (tmp_path / "out" / "report.html").read_text()
    assert "seen: 3 of 4" in page and "Warning" in page


def test_compared_runs_are_asked_the_same_questions_that_no_model_of_any_of_them_has_seen(
    tmp_path: Path, models: Path, reader: Path, index: Path
) -> None:
    adapted = {"system": {"strategy": "single"}, "adapter": str(models / "mine")}
    config = write_config(tmp_path, models, index, plain=PLAIN, adapted=adapted)
    said = ask(config, "--unseen", "--run", "plain")
    assert f"left out 3 of 4 that models have seen in training ({READER_NAME} 1, mine 2)" in " ".join(said.split())
    [row] = read_questions(tmp_path / "out" / "plain")
    assert row.question == PARAPHRASE and row.seen == {}, "other words are not recognised"
    assert read_run(tmp_path / "out" / "plain").benchmark["left_out"]["seen"]["count"] == 3
    assert "single on 1 questions of qa; left out 3 of 4" in ask(config, "--unseen", "--run", "adapted", "--check")


def test_a_sample_is_taken_of_the_unseen_questions_and_a_configuration_can_ask_for_them(
    tmp_path: Path, models: Path, reader: Path, index: Path
) -> None:
    config = write_config(tmp_path, models, index, plain=PLAIN)
    config.write_text(config.read_text().replace("  format: own", "  unseen: true\n  format: own"))
    assert "naive-5 on 3 questions of qa; left out 1 of 4" in ask(config, "--check")
    assert "naive-5 on 2 questions of qa; left out 1 of 4" in ask(config, "--check", "--sample", "2")
    assert "naive-5 on 4 questions of qa: everything fits" in ask(config, "--check", "--no-unseen")


def test_without_an_unseen_question_nothing_is_asked(tmp_path: Path, models: Path, reader: Path, index: Path) -> None:
    config = write_config(tmp_path, models, index, plain=PLAIN)
    teach(reader, READER, Fingerprints.of(OWN))
    with pytest.raises(ConfigError, match=r"models have seen all 4 in training \(embedded reader 4\)"):
        ask(config, "--unseen")
    assert not (tmp_path / "out").exists()


def test_a_changed_record_of_training_is_another_run(tmp_path: Path, models: Path, reader: Path, index: Path) -> None:
    config = write_config(tmp_path, models, index, plain=PLAIN)
    ask(config)
    teach(reader, READER, Fingerprints.of(OWN))
    with pytest.raises(ArtifactError, match=r"fingerprints\.reader"):
        ask(config)


def test_what_a_reader_has_seen_is_read_only_as_its_manifest_lists_it(reader: Path) -> None:
    assert TrainedModel.read_reader().fingerprints.has_title("Port Velm")
    Fingerprints.of(titles=["Sarnath"]).write(reader)
    with pytest.raises(ArtifactError, match="has changed since it was built"):
        TrainedModel.read_reader()
    (reader / MANIFEST).unlink()
    assert TrainedModel.read_reader().fingerprints.unknown == (READER_NAME,)
    assert TrainedModel.read_reader(reader).fingerprints.unknown == ("reader",)


def test_endpoints_servers_predictions_and_models_without_fingerprints_are_unknown_by_name(base: Path) -> None:
    def name_unknown(system: dict[str, Any], **values: Any) -> list[str]:
        made = {"benchmark": {"format": "own", "path": "qa.csv"}, "system": system, "index": "i", **values}
        return [*list_unknown(list_models(RunConfig.model_validate(made)))]

    endpoints = {name: {"url": "http://127.0.0.1:1/v1", "model": name[0]} for name in ("planner", "generator")}
    assert name_unknown({"strategy": "auto"}, judge="none", **endpoints) == ["generator g", "planner p"]
    judges = name_unknown({"strategy": "auto"}, judge={"url": "http://127.0.0.1:1/v1", "model": "j"}, **endpoints)
    assert judges == ["generator g", "judge j", "planner p"]
    embedded = name_unknown({"strategy": "auto"}, base=str(base), **endpoints)
    assert embedded == sorted(["generator g", "planner p", base.name]), "the base judges beside a planner"
    assert name_unknown({"strategy": "auto"}, url="127.0.0.1:8001") == ["server 127.0.0.1:8001"]
    assert name_unknown({"predictions": "theirs.jsonl"}) == ["predictions theirs"]
    own = name_unknown({"strategy": "auto"}, adapter="base", base=str(base), generator=endpoints["generator"])
    assert own == sorted([base.name, "generator g"])
    ranking = {"ranking": {"way": "plain"}}
    assert name_unknown(ranking, benchmark={"format": "itlr", "path": "corpus"}) == ["encoder minilm"]


def test_the_encoder_of_each_index_that_a_run_searches_is_unknown_by_name(tmp_path: Path) -> None:
    for name, model in {"own": "one", "papers": "other", "notes": "other"}.items():
        (tmp_path / name).mkdir()
        INDEX.write_manifest(tmp_path / name, {"settings": asdict(IndexSettings("dense", model))})
    texts = [{"kind": "text", "name": name, "index": name} for name in ("papers", "notes")]
    sources = [{"kind": "text"}, *texts, {"kind": "graph", "folder": "films"}]
    (tmp_path / "sources.yaml").write_text(yaml.safe_dump({"sources": sources}))
    shared = {
        "benchmark": {"format": "own", "path": "qa.csv"},
        "index": str(tmp_path / "own"),
        "sources": str(tmp_path / "sources.yaml"),
        "generator": {"url": "http://127.0.0.1:1/v1", "model": "g"},
        "planner": {"url": "http://127.0.0.1:1/v1", "model": "p"},
        "judge": "none",
    }

    def name_encoders(**values: Any) -> list[str]:
        unknown = list_unknown(list_models(RunConfig.model_validate(shared | values)))
        return [name for name in unknown if name.startswith("encoder")]

    auto, plain, direct = {"strategy": "auto"}, {"baseline": "naive-5"}, {"strategy": "direct"}
    assert name_encoders(system=auto) == ["encoder one", "encoder other"]
    assert name_encoders(system=auto, ablation={"sources": ["notes", "graph"]}) == ["encoder other"]
    assert name_encoders(system=auto, ablation={"sources": ["graph"]}) == []
    assert name_encoders(system=auto, sources="") == ["encoder one"]
    assert name_encoders(system=plain) == ["encoder one"], "a baseline asks no sources"
    assert name_encoders(system=direct) == []


FIRST = AnnotatedStep(DIRECTED, ("Ines Calloway",), "Lantern Row")
SECOND = AnnotatedStep(BORN, ("Port Velm",), "Ines Calloway")
HOPS = AnnotatedQuestion(
    "musique:1",
    "musique",
    "",
    "",
    "Where was the director of Lantern Row born?",
    "complex",
    "Who directed Lantern Row? * Where was {director} born?",
    steps=(FIRST, SECOND),
    answers=("Port Velm",),
    passages=(AnnotatedPassage("Lantern Row", "…", True), AnnotatedPassage("Sarnath", "…", False)),
)


@pytest.mark.parametrize(
    ("known", "found"),
    [
        (Fingerprints.of(["where was the director of “Lantern Row” born"]), "question"),
        (Fingerprints.of_numbers([fingerprint(BORN)]), "question"),  # as of a composed question of the training
        (Fingerprints.of(titles=["Lantern Row"]), "article"),
        (Fingerprints.of(titles=["Sarnath"]), None),  # a distractor
        (Fingerprints.of(["Where was {director} born?"]), None),  # the leaf of many plans
        (Fingerprints.of(["Who was Lantern Row directed by?"]), None),  # a paraphrase
    ],
)
def test_a_question_is_seen_by_its_text_its_steps_or_its_gold_articles(known: Fingerprints, found: str | None) -> None:
    seen = find_seen_question([TrainedModel("mine", known)], HOPS)
    assert seen == ({"mine": found} if found else {})


def test_a_single_question_that_was_trained_on_inside_a_composed_one_is_seen() -> None:
    composed = Fingerprints.of([HOPS.question]) | Fingerprints.of([DIRECTED, BORN])
    assert find_seen([TrainedModel("mine", composed)], [BORN]) == {"mine": "question"}


def test_rows_of_a_reading_say_what_the_reader_has_seen(tmp_path: Path, reader: Path) -> None:
    row = {"question": FOUNDED, "passage": "Port Velm was founded in 1402."}
    row |= {"answers": [{"text": "1402", "start": 25}]}
    rows = [row | {"title": title} for title in ("Port Velm", "Towns")]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = ["--rows", str(tmp_path / "rows.jsonl"), "--reader", str(reader), "--json"]
    said = json.loads(CliRunner().invoke(evaluate, asked, catch_exceptions=False).stdout)
    assert said["seen"] == {"count": 1, "n": 2, "by_model": {"reader": 1}}


def test_a_run_of_an_earlier_release_is_unknown_and_a_report_warns_of_the_others(tmp_path: Path) -> None:
    folders = write_runs(tmp_path, "ab" * 32)[:2]
    old, other = load_run_folders(folders)
    assert str(old.seen) == "seen: unknown" and "Warning" not in conclude(old, [other], "f1")
    for run in (tmp_path / "m0", tmp_path / "m1"):
        assert '"seen":null' in (run / QUESTIONS).read_text()
    seen = [{"mine": "question"}] * 2 + [{}] * 22
    new = replace(other, rows=[replace(row, seen=own) for row, own in zip(other.rows, seen, strict=True)])
    warning = f"Warning: questions were seen in training, which flatters: {new.name} 2 of 24 (mine 2)."
    assert conclude(old, [new], "f1").endswith(warning)
    asked = [*map(str, folders), "--out", str(tmp_path / "report"), "--no-mlflow"]
    said = CliRunner().invoke(report, asked, catch_exceptions=False).stdout
    assert "auto seen: unknown" in said
    written = json.loads(CliRunner().invoke(report, [*asked, "--json"]).stdout)
    assert written["seen"]["auto on multi-hop"]["unknown"] == ["no record"]


def test_a_count_names_the_models_of_which_it_is_unknown() -> None:
    assert str(SeenCount.of([{"mine": "question"}, {}], ["mini"])) == "seen: 1 of 2; unknown: mini"
