"""`revelator model promote`, `rollback` and `grade` on a real registry with toy adapters."""

import json
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import mlflow
import pytest
from click.testing import CliRunner

from data_gen.commands.build import build as build_set
from evaluation.gate.command import grade, promote, show_versions
from evaluation.gate.questions import read_slices
from evaluation.gate.scores import PINNED, read_pinned_rows
from revelator import promotions, registry
from revelator.artifact import read_manifest, write_manifest
from revelator.errors import ArtifactError, ConfigError, DataError, GateRefused
from revelator.fingerprints import Fingerprints
from revelator.rows import make_table, read_split
from revelator.rows import write_set as write_rows
from serving.commands.deploy import rollback
from tests.training.toy import write_adapter, write_base, write_set

OPEN = "confidence: 0.9\nminimum: 1\nmargins: {}\nfloors: {}\n"
SHUT = "confidence: 0.9\nminimum: 1\nmargins: {}\nfloors: {translate_bnf: 0.9}\n"


@dataclass(frozen=True)
class Place:
    home: Path
    base: Path
    set_folder: Path

    def call(self, command, *arguments: str) -> str:
        """With one row of a task, unless `arguments` say otherwise."""
        return self.bare(command, "--limit", "1", *arguments)

    def bare(self, command, *arguments: str) -> str:
        given = ["--home", str(self.home), *arguments]
        result = CliRunner().invoke(command, given, catch_exceptions=True, standalone_mode=False)
        if result.exception:
            raise result.exception
        return result.stdout

    def rules(self, text: str) -> str:
        path = self.home / "rules.yaml"
        path.write_text(text)
        return str(path)


def record_training(adapter: Path, question: str) -> None:
    """Writes down that the adapter was trained on one question; its manifest is written anew."""
    Fingerprints.of([question]).write(adapter)
    about = asdict(read_manifest(adapter))
    names = ("base_name", "base_digest", "data_digest", "run_id", "tasks")
    write_manifest(adapter, **{name: about[name] for name in names})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    root = tmp_path_factory.mktemp("promote")
    place = Place(root / "home", write_base(root / "base"), write_set(root / "set", train=1, dev=3))
    registry.connect(place.home)
    for seed, run_id in ((1, ""), (2, ""), (1, "twin")):  # version 3 answers as version 1 does
        folder = write_adapter(root / f"adapter-{seed}{run_id}", place.base, seed=seed, run_id=run_id)
        registry.register_adapter(folder, "revelator", "", {"set_folder": str(place.set_folder)})
    return place


def test_the_gate_refuses_with_the_table_and_moves_nothing(place: Place) -> None:
    with pytest.raises(GateRefused, match=r"translate_bnf letters .* under its floor 0\.9") as caught:
        place.call(promote, "--version", "1", "--rules", place.rules(SHUT))
    assert caught.value.exit_status == 1
    assert "FAILED" in caught.value.table and "translate_bnf" in str(caught.value)
    assert registry.find_champion() is None
    arguments = ["--home", str(place.home), "--limit", "1", "--rules", place.rules(SHUT), "--json"]
    refused = CliRunner().invoke(promote, arguments)
    summary = json.loads(refused.stdout)
    assert summary["moved"] is False and any("under its floor" in reason for reason in summary["refusals"])
    judged = registry.resolve("revelator", "latest")
    page = registry.open_client().get_model_version("revelator", str(judged.version)).description
    assert judged.tags["gate.verdict"] == "refused" and "**refused**: mean over tasks" in page
    assert "\n* translate_bnf letters" in page and "| floor | change |" in page


def test_a_dry_run_judges_and_moves_nothing(place: Place) -> None:
    summary = json.loads(place.call(promote, "--version", "1", "--rules", place.rules(OPEN), "--dry-run", "--json"))
    assert summary["moved"] is False and set(summary["tasks"]) >= {"route", "translate_bnf"}
    table = place.call(promote, "--version", "1", "--rules", place.rules(OPEN), "--dry-run")
    assert "route" in table and "translate_bnf" in table and "the gate is open; --dry-run moves nothing" in table
    assert registry.find_champion() is None
    assert "gate.verdict" not in registry.resolve("revelator", 2).tags


def test_what_an_adapter_was_graded_on_before_is_not_asked_again(place: Place) -> None:
    arguments = ("--version", "1", "--rules", place.rules(OPEN), "--dry-run", "--json")

    def count_kept() -> int:
        batches = [json.loads(path.read_text()) for path in place.home.glob("gate/rows-*/*.json")]
        return sum(map(len, batches))

    first, kept = place.call(promote, *arguments), count_kept()
    assert place.call(promote, *arguments) == first and count_kept() == kept > 0
    place.call(promote, *arguments, "--split", "test")
    assert count_kept() > kept


def test_a_promotion_moves_the_alias_and_records_what_it_replaced(place: Place) -> None:
    first = json.loads(place.call(promote, "--version", "1", "--rules", place.rules(OPEN), "--json"))
    assert (first["version"], first["replaced"], first["moved"]) == (1, None, True)
    again = place.call(promote, "--version", "1", "--rules", place.rules(OPEN))
    assert "champion already" in again
    with pytest.raises(GateRefused, match="the mean over tasks is not shown to rise") as refused:
        place.call(promote, "--version", "3", "--rules", place.rules(OPEN), "--dry-run")
    assert "champion 1" in refused.value.table and "must rise" in refused.value.table
    # Both are random, so only the floors make it certain that the second passes.
    second = json.loads(place.call(promote, "--version", "2", "--rules", place.rules(OPEN), "--floors-only", "--json"))
    assert (second["version"], second["replaced"]) == (2, 1)
    champion = registry.find_champion()
    assert champion and champion.version == 2 and champion.tags["champion_replaced"] == "1"
    run = mlflow.get_run(champion.tags["promotion_run"])
    assert run.data.tags["replaces"] == "1" and "challenger/translate_bnf_letters" in run.data.metrics
    assert "Version 2 became champion in place of 1: mean over tasks" in run.data.tags["mlflow.note.content"]
    [scored] = run.inputs.dataset_inputs
    assert scored.dataset.name == place.set_folder.name and scored.tags[0].value == "evaluation"
    assert champion.tags["gate.verdict"] == "passed" and champion.tags["gate.route"].endswith("accuracy, n = 1")
    page = registry.open_client().get_model_version("revelator", "2").description
    assert page.count("## Promotion gate") == 1 and "| route | accuracy | 1 |" in page
    model = registry.open_client().get_logged_model(champion.model_id)
    assert "challenger/translate_bnf_letters" in {metric.key for metric in model.metrics}


def test_versions_are_listed_with_the_newest_first_and_the_champion_named(place: Place) -> None:
    listed = json.loads(place.bare(show_versions, "--json"))["versions"]
    assert [entry["version"] for entry in listed] == sorted((entry["version"] for entry in listed), reverse=True)
    champion = registry.find_champion()
    assert champion is not None
    assert [entry["version"] for entry in listed if "champion" in entry["aliases"]] == [champion.version]
    assert "champion" in place.bare(show_versions)


def test_a_rollback_makes_the_replaced_version_champion_again_and_says_when_there_is_none(place: Place) -> None:
    summary = json.loads(place.bare(rollback, "--json"))
    assert (summary["version"], summary["replaced"], summary["moved"]) == (1, 2, True)
    champion = registry.find_champion()
    assert champion and champion.version == 1
    with pytest.raises(ArtifactError, match="no version is recorded that champion 1 replaced"):
        place.bare(rollback)


def test_scores_of_a_version_of_a_folder_and_of_the_base_alone(place: Place, tmp_path: Path) -> None:
    of_version = json.loads(place.call(grade, "1", "--json"))
    of_folder = json.loads(
        place.call(grade, str(place.home / "adapters" / "revelator-1"), "--set", str(place.set_folder), "--json")
    )
    assert of_version == of_folder and of_version["route"]["n"] == 1
    alone = json.loads(place.call(grade, "base", "--base", str(place.base), "--set", str(place.set_folder), "--json"))
    assert set(alone) == set(of_version)
    known = write_adapter(tmp_path / "known", place.base)
    question = read_pinned_rows(place.set_folder, "dev", 1)[0].question
    record_training(known, question)
    asked = (str(known), "--set", str(place.set_folder))
    graded = json.loads(place.call(grade, *asked, "--json"))
    assert any(own["seen"]["count"] == 1 for own in graded.values())
    assert all(own["unknown"] == [place.base.name] for own in graded.values())
    assert "seen: 1 of 1" in " ".join(place.call(grade, *asked).split())


def test_graded_rows_are_kept_and_a_grading_that_was_broken_off_goes_on(place: Place, tmp_path: Path) -> None:
    asked = ["base", "--base", str(place.base), "--set", str(place.set_folder), "--home", str(tmp_path), "--json"]
    whole = json.loads(place.call(grade, *asked))
    for own in whole.values():
        assert all(low <= own[name] <= high for name, (low, high) in own["intervals"].items())
    batches = {path: path.read_text() for path in tmp_path.glob("gate/rows-*/*.json")}
    assert sum(len(json.loads(text)) for text in batches.values()) == sum(own["n"] for own in whole.values())
    lost, *others = batches
    lost.unlink()  # killed before the last batch
    assert json.loads(place.call(grade, *asked)) == whole
    new = set(tmp_path.glob("gate/rows-*/*.json")) - {*others}
    assert [path.read_text() for path in new] == [batches[lost]]
    place.call(grade, *asked, "--decoding", "free")
    assert len(list(tmp_path.glob("gate/rows-*"))) == 2


def test_only_the_rows_of_one_source_are_graded_and_an_unknown_source_is_named(place: Place) -> None:
    asked = ["base", "--base", str(place.base), "--set", str(place.set_folder), "--json"]
    with pytest.raises(ConfigError, match="no dev rows of nowhere"):
        place.call(grade, *asked, "--source", "nowhere")


def test_a_set_of_thirty_pairs_is_refused_before_anything_is_scored(tmp_path: Path) -> None:
    """Pairs without plans make a set of one shape; what is left of thirty for dev shows nothing."""
    pairs = [
        f"Where does the {word} courier number {n} start?,Port {word}" for n in range(15) for word in ("Oru", "Ela")
    ]
    (tmp_path / "qa.csv").write_text("\n".join(["question,answer", *pairs]))
    source = {"format": "pairs", "path": str(tmp_path / "qa.csv")}
    config = {"name": "mine", "split": {"dev": 0.2}, "sources": [source]}
    (tmp_path / "mine.yaml").write_text(json.dumps(config))
    made = [str(tmp_path / "mine.yaml"), "--out", str(tmp_path / "set")]
    with pytest.raises(DataError, match="no question of this set has several hops"):
        CliRunner().invoke(build_set, made, standalone_mode=False, catch_exceptions=False)
    CliRunner().invoke(build_set, [*made, "--allow-single"], standalone_mode=False, catch_exceptions=False)
    base = write_base(tmp_path / "base")
    registry.connect(tmp_path)
    for seed in (1, 2):
        folder = write_adapter(tmp_path / f"adapter-{seed}", base, seed=seed)
        registry.register_adapter(folder, tags={"set_folder": str(tmp_path / "set")})
    asked = ["--home", str(tmp_path)]
    with pytest.raises(GateRefused, match=r"\d+ questions of the challenger's set, and 100 are wanted") as refused:
        CliRunner().invoke(promote, asked, standalone_mode=False, catch_exceptions=False)
    assert "--force" in (refused.value.hint or "") and registry.find_champion() is None
    (tmp_path / "open.yaml").write_text("confidence: 0.9\nmargins: {}\nfloors: {}\n")
    forced = [*asked, "--force", "--rules", str(tmp_path / "open.yaml"), "--json"]
    CliRunner().invoke(promote, forced, standalone_mode=False, catch_exceptions=False)
    champion = registry.find_champion()
    assert champion is not None and "and 100 are wanted" in champion.tags["forced"]


def test_the_champions_questions_are_asked_again_and_one_that_lost_them_is_said(place: Place, tmp_path: Path) -> None:
    other = write_set(tmp_path / "other", train=1, dev=4)
    place = replace(place, home=tmp_path / "home")
    registry.connect(place.home)
    for number, folder in enumerate((place.set_folder, other), 1):
        adapter = write_adapter(tmp_path / f"adapter-{number}", place.base, seed=number)
        registry.register_adapter(adapter, tags={"set_folder": str(folder)})
    rules = ("--rules", place.rules(OPEN), "--limit", "3")
    place.call(promote, "--version", "1", *rules)
    with pytest.raises(GateRefused) as refused:
        place.call(promote, "--version", "2", *rules)
    assert "pinned/translate_bnf" in refused.value.table
    shutil.move(other, tmp_path / "elsewhere")
    third = write_adapter(tmp_path / "adapter-3", place.base, seed=3)
    registry.register_adapter(third, tags={"set_folder": str(tmp_path / "elsewhere")})
    promotions.move(registry.NAME, 2, promotions.read_standing(registry.NAME))
    with pytest.raises(GateRefused, match="the champion's questions cannot be read"):
        place.call(promote, "--version", "3", *rules)


def test_pinned_questions_leave_out_what_any_set_of_the_challenger_taught(tmp_path: Path) -> None:
    old, new = write_set(tmp_path / "old", train=1, dev=4), write_set(tmp_path / "new", train=1, dev=5)
    with write_rows(tmp_path / "other", {}) as writer:
        known = [row for row in read_split(old, "dev") if row.task != "route"]
        writer.add(make_table([replace(row, split="train") for row in known]))
    new_tags = {"set_folder": str(new), "other_sets": json.dumps([str(tmp_path / "other")])}
    champion = registry.Version(registry.NAME, 1, "", "", {"set_folder": str(old)})
    challenger = registry.Version(registry.NAME, 2, "", "", new_tags)
    slices, _, unread = read_slices(new, challenger, champion, "dev", 0)
    assert not unread and {row.task for row in slices[PINNED]} == {"route"}


def test_questions_are_asked_end_to_end_and_the_next_challenger_is_asked_them_too(
    place: Place, index: Path, tmp_path: Path
) -> None:
    place = replace(place, home=tmp_path / "home")
    registry.connect(place.home)
    for seed in (1, 2):
        adapter = write_adapter(tmp_path / f"adapter-{seed}", place.base, seed=seed)
        record_training(adapter, "Who directed Lantern Row?" if seed == 1 else "Who?")
        registry.register_adapter(adapter, tags={"set_folder": str(place.set_folder)})
    questions = tmp_path / "qa.csv"
    questions.write_text(
        "Frage,answer\nWho directed Lantern Row?,Ines Calloway\nWhere was Ines Calloway born?,Port Velm\n"
        "When was Port Velm founded?,1402\nWho built Port Velm?,\n"
    )
    rules = ("--rules", place.rules(OPEN), "--json")
    given = ("--questions", str(questions), "--column", "question=Frage", "--index", str(index))
    with pytest.raises(ConfigError, match="which index is searched"):
        place.call(promote, "--version", "1", *rules, *given[:2])
    first = json.loads(place.call(promote, "--limit", "4", "--version", "1", *rules, *given))
    assert first["moved"] and first["tasks"]["answers"]["n"] == 3 and first["tasks"]["refusals"]["n"] == 1
    seen = first["tasks"]["answers"]["seen"]["challenger"]
    assert (seen["seen"]["count"], seen["seen"]["n"]) == (1, 3) and place.base.name in seen["unknown"]
    assert "Warning: questions were seen in training, which flatters: challenger 1 of" in first["seen"]
    refused = CliRunner().invoke(promote, ["--home", str(place.home), "--limit", "4", "--version", "2", *rules])
    assert isinstance(refused.exception, GateRefused), refused.exception
    said = json.loads(refused.stdout)
    assert said["tasks"]["pinned/answers"]["n"] == 3 and said["tasks"]["pinned/refusals"]["n"] == 1
    assert "flatters: champion 1 of" in said["seen"] and "seen: 1 of 3" in refused.exception.table
    questions.write_text(questions.read_text() + "Who?,Ada\n")
    with pytest.raises(ArtifactError, match="sha256"):
        place.call(promote, "--version", "2", *rules)


def test_an_unknown_version_and_a_missing_set_are_clear_errors(place: Place) -> None:
    with pytest.raises(ArtifactError, match="has no version or alias '9'"):
        place.call(promote, "--version", "9")
    with pytest.raises(ConfigError, match=r"no instruction set at .* to score on"):
        place.call(grade, "1", "--set", str(place.home / "nowhere"))


def test_a_champion_whose_base_was_replaced_is_named_before_anything_is_scored(place: Place) -> None:
    promotions.move("revelator", 2, promotions.read_standing("revelator"))
    write_base(place.base, seed=9)
    adapter = write_adapter(place.home / "adapter-4", place.base, seed=4)
    registry.register_adapter(adapter, "revelator", "", {"set_folder": str(place.set_folder)})
    with pytest.raises(ArtifactError, match=r"the champion cannot be scored: .*when the adapter was trained") as caught:
        place.call(promote, "--rules", place.rules(OPEN))
    assert "--floors-only" in (caught.value.hint or "")
    fourth = json.loads(place.call(promote, "--rules", place.rules(OPEN), "--floors-only", "--json"))
    assert (fourth["version"], fourth["replaced"], fourth["moved"]) == (4, 2, True)
