"""`revelator index`: build, search, info, as a person and as a program call it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from zipfile import ZipFile

import openpyxl
import pytest
from click.testing import CliRunner, Result

from revelator.cli import revelator
from revelator.errors import ArtifactError, ConfigError, DataError, ExpressionError

ROWS = [
    {"title": "Marlow Vint", "text": "Marlow Vint directed Copper Rain."},
    {"title": "Ålevik", "text": "Ålevik is a town by the sea ."},
]


def call(*arguments: object) -> Result:
    return CliRunner().invoke(revelator, ["index", *map(str, arguments)])


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def test_build_search_and_info_work_together(tmp_path: Path, corpus: Path) -> None:
    built = call("build", corpus, "--out", tmp_path / "ix")
    assert built.exit_code == 0
    assert "2 passages" in built.stdout
    found = call("search", tmp_path / "ix", "who directed copper rain?", "-k", 1)
    assert "Marlow Vint directed Copper Rain." in found.stdout
    info = call("info", tmp_path / "ix")
    assert "2 passages" in info.stdout
    assert "kind bm25" in info.stdout
    assert "the index is as it was built, and so are the files" in info.stdout


def test_a_passage_is_shown_as_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "parts.csv").write_text("part,maker,price\nshaft,Holm,9\ngear,Ro,7\n")
    call("build", tmp_path / "parts.csv", "--out", tmp_path / "ix")
    title, *lines = call("search", tmp_path / "ix", "shaft").stdout.splitlines()
    assert title.endswith("parts  (parts.csv#2-3)")
    assert [line.strip() for line in lines] == ["part: shaft; maker: Holm; price: 9", "part: gear; maker: Ro; price: 7"]


def test_add_and_info_say_which_files_are_new_changed_removed_and_gone(tmp_path: Path) -> None:
    folder, index = tmp_path / "docs", tmp_path / "ix"
    folder.mkdir()
    for name in ("same", "other", "lost"):
        (folder / f"{name}.txt").write_text(f"It is the {name} one.")
    call("build", folder, "--out", index)
    (folder / "other.txt").write_text("It is a new one.")
    (folder / "lost.txt").unlink()
    info = call("info", index)
    assert (
        "changed: other.txt\ngone: lost.txt\n"
        "the index is as it was built, but the files that it was built from are not: 1 changed, 1 gone\n"
    ) in info.stdout
    assert json.loads(call("info", index, "--json").stdout)["changed"] == ["other.txt"]
    (folder / "added.txt").write_text("It came later.")
    added = call("update", index, folder)
    assert added.stdout.startswith("added: added.txt\nchanged: other.txt\ngone: lost.txt\n")
    synced = json.loads(call("update", index, folder, "--sync", "--json").stdout)
    assert (synced["added"], synced["changed"], synced["removed"], synced["gone"]) == ([], [], ["lost.txt"], [])


def test_info_names_as_fields_those_that_a_filter_takes_and_says_what_is_not_for_everybody(tmp_path: Path) -> None:
    readers = ({"team": "ops", "allowed": ["hr"]}, {"allowed": ["*"]})
    rows = [{**row, **more} for row, more in zip(ROWS, readers, strict=True)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    call("build", tmp_path / "rows.jsonl", "--out", tmp_path / "ix")
    told = call("info", tmp_path / "ix").stdout
    assert "fields: path (1), team (1), type (1)\n" in told
    assert "not for everybody: 1 of 2 passages\n" in told
    listed = json.loads(call("info", tmp_path / "ix", "--json").stdout)
    assert listed["restricted"] == 1
    for name in listed["fields"]:
        assert call("search", tmp_path / "ix", "town", "--where", f'{name} != "other"').exit_code == 0


def test_an_addition_says_whether_anything_has_changed_and_what_a_service_does_with_it(tmp_path: Path) -> None:
    folder, index = tmp_path / "docs", tmp_path / "ix"
    folder.mkdir()
    (folder / "quay.txt").write_text("It is the quay.")
    (folder / "empty.txt").write_text("")
    call("build", folder, "--out", index)
    before = (index / "manifest.json").read_bytes()
    added = call("update", index, folder)
    assert "nothing has changed" in added.stdout and "a service" not in added.stdout
    assert (index / "manifest.json").read_bytes() == before
    (folder / "quay.txt").write_text("It was the quay.")
    added = call("update", index, folder)
    assert "nothing has changed" not in added.stdout and "from its next question" in added.stdout


def test_what_a_build_left_out_stays_named_while_it_is_there(tmp_path: Path) -> None:
    folder, index = tmp_path / "docs", tmp_path / "ix"
    (folder / "inner").mkdir(parents=True)
    for name in ("quay.txt", "inner/ice.txt"):
        (folder / name).write_text(f"It is {name}.")
    for name in ("empty.txt", "gone.txt", "inner/blank.txt"):
        (folder / name).write_text("")
    call("build", folder, "--out", index)
    (folder / "gone.txt").unlink()
    (folder / "inner" / "new.txt").write_text("It is new.")

    def list_left() -> list[str]:
        return re.findall("left out: (.*?):", call("info", index).stdout)

    call("update", index, folder / "inner")
    assert list_left() == ["empty.txt", "ice.txt", "inner/blank.txt"]
    call("update", index, "--remove", "new.txt")
    assert {"empty.txt", "inner/blank.txt"} <= set(list_left())
    (folder / "empty.txt").write_text("It is no longer empty.")
    call("update", index, folder)
    assert list_left() == ["inner/blank.txt"]


def test_formulas_without_a_stored_value_are_counted_and_named(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row in (["Part", "Price", "Tax"], ["shaft", 9, "=B2*2"], ["gear", 7, "=B3*2"], ["All", "=SUM(B2:B3)", 1]):
        book.worksheets[0].append(row)
    book.save(tmp_path / "costs.xlsx")
    said = "partly read: costs.xlsx: formula cells without a stored value: 3 (open and save the file"
    built = call("build", tmp_path / "costs.xlsx", "--out", tmp_path / "ix")
    assert built.stderr.count(said) == 1
    assert said in call("info", tmp_path / "ix").stdout
    assert call("update", tmp_path / "ix", tmp_path / "costs.xlsx").stderr.count(said) == 1


@pytest.mark.parametrize(
    ("value", "count"), [("<v>3</v>", 0), ("<v></v>", 1), ("<v/>", 1), ("", 1)], ids=["number", "empty", "none", "no v"]
)
def test_a_stored_value_of_a_formula_is_read(tmp_path: Path, value: str, count: int) -> None:
    book = openpyxl.Workbook()
    book.worksheets[0].append(["Part", "=1+2"])
    book.save(tmp_path / "made.xlsx")
    with ZipFile(tmp_path / "made.xlsx") as made, ZipFile(tmp_path / "sums.xlsx", "w") as sums:
        for name in made.namelist():
            content = made.read(name).decode()
            sums.writestr(name, re.sub("(<f>1\\+2</f>)<v */>|(<f>1\\+2</f>)<v></v>", rf"<f>1+2</f>{value}", content))
    built = call("build", tmp_path / "sums.xlsx", "--out", tmp_path / "ix")
    assert ("without a stored value: 1" in built.stderr) == bool(count)
    assert ("Part: 3" in call("search", tmp_path / "ix", "part").stdout) == (not count)


def test_json_is_one_value_on_standard_output(tmp_path: Path, corpus: Path) -> None:
    built = json.loads(call("build", corpus, "--out", tmp_path / "ix", "--json").stdout)
    assert built["count"] == 2
    found = json.loads(call("search", tmp_path / "ix", "alevik", "--json").stdout)
    assert [(p["id"], p["title"]) for p in found] == [("corpus:2", "Ålevik")]
    assert json.loads(call("info", tmp_path / "ix", "--json").stdout)["settings"]["kind"] == "bm25"


def test_a_search_that_finds_nothing_says_so(tmp_path: Path, corpus: Path) -> None:
    call("build", corpus, "--out", tmp_path / "ix")
    found = call("search", tmp_path / "ix", "zeppelin")
    assert (found.exit_code, found.stdout) == (0, "no passage shares a word with the query\n")


def test_what_a_corpus_holds_stays_on_its_line_and_does_not_steer_the_terminal(tmp_path: Path) -> None:
    row = {"id": "i\x9b", "title": "bell\x07", "text": "one \x1b[2J\x1b]0;owned\x07 word\n  0.99  Forged  (id)\u202e"}
    (tmp_path / "c.jsonl").write_text(json.dumps(row) + "\n")
    call("build", tmp_path / "c.jsonl", "--out", tmp_path / "ix")
    first, second, third = call("search", tmp_path / "ix", "word").stdout.splitlines()
    assert first.endswith("bell·  (i·)")
    assert (second, third) == (" " * 9 + "one ·[2J·]0;owned· word", " " * 9 + "0.99 Forged (id)·")


def test_wrong_usage_exits_with_2_and_refused_content_with_our_errors(tmp_path: Path, corpus: Path) -> None:
    assert call("build", "--out", tmp_path / "ix").exit_code == 2
    assert call("search", tmp_path, "x", "-k", 0).exit_code == 2
    assert isinstance(call("search", tmp_path, "x").exception, ArtifactError)
    corpus.write_text("{}\n")
    assert isinstance(call("build", corpus, "--out", tmp_path / "ix").exception, DataError)
    assert not (tmp_path / "ix").exists()


@pytest.mark.parametrize("command", [("build",), ("search",), ("calibrate",), ("info",)])
def test_help_shows_examples(command: tuple[str, ...]) -> None:
    assert "Example" in call(*command, "--help").stdout


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sentence_transformers", reason="the optional dependency group `dense` is not installed")
    from tests.serving.retrieval.toy_encoder import write_encoder

    folder = tmp_path_factory.mktemp("hybrid")
    rows = [{"id": name, "title": name, "text": text} for name, text in (("a", "red cat"), ("b", "red dog"))]
    (folder / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = write_encoder(folder / "model")
    built = call("build", folder / "c.jsonl", "--kind", "hybrid", "--model", model, "--out", folder / "ix")
    assert built.exit_code == 0, built.output
    assert "vectors of 32" in built.stdout
    return folder / "ix"


def test_scores_that_differ_are_printed_as_different_ones(hybrid: Path) -> None:
    found = json.loads(call("search", hybrid, "red dog", "--json").stdout)
    printed = [line.split()[0] for line in call("search", hybrid, "red dog").stdout.splitlines() if line[:9].strip()]
    assert found[0]["score"] - found[1]["score"] < 0.001
    assert [float(score) for score in printed] == pytest.approx([one["score"] for one in found], rel=1e-3)
    assert len(set(printed)) == 2


def test_a_logical_search_takes_the_operators_that_it_is_given(hybrid: Path) -> None:
    for more in ((), ("--set", "source=bm25"), ("--set", "calibration=self"), ("--set", "conjunction=min")):
        found = call("search", hybrid, "--logic", '"red" AND NOT "dog"', "-k", 1, "--json", *more)
        assert [p["id"] for p in json.loads(found.stdout)["passages"]] == ["a"], more


def test_a_logical_search_says_what_is_odd_about_the_query(hybrid: Path) -> None:
    odd = call("search", hybrid, "--logic", '"red" AND NOT "red"', "--json")
    assert "no document can match" in odd.stderr
    assert [warning["code"] for warning in json.loads(odd.stdout)["warnings"]] == ["contradiction"]


def test_a_passage_that_holds_nothing_of_a_logical_query_is_not_found(hybrid: Path) -> None:
    found = call("search", hybrid, "--logic", '"zeppelin"', "--set", "source=bm25")
    assert (found.exit_code, found.stdout) == (0, "no passage matches the query\n")
    some = call("search", hybrid, "--logic", '"dog"', "--set", "source=bm25", "--json")
    assert [p["id"] for p in json.loads(some.stdout)["passages"]] == ["b"]


def test_an_option_that_would_not_count_is_refused(hybrid: Path) -> None:
    found = call("search", hybrid, "red", "--set", "conjunction=min")
    assert found.exit_code == 2 and "counts with --logic alone" in found.stderr


def write_labels(path: Path, *rows: tuple[object, object, object]) -> Path:
    names = ("term", "passage", "relevant")
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("source", ["dense", "bm25", "both"])
def test_labels_calibrate_the_scores_of_a_logical_search(hybrid: Path, tmp_path: Path, source: str) -> None:
    rows = (("dog", "b", True), ("dog", "a", False), ("cat", "a", True), ("cat", "b", False), ("red", "a", True))
    labels, out = write_labels(tmp_path / "l.jsonl", *rows), tmp_path / "fitted.json"
    made = call("calibrate", hybrid, labels, "--out", out, "--source", source)
    assert (made.exit_code, made.stdout.count("threshold")) == (0, 3), made.output
    fitted = json.loads(out.read_bytes())
    assert set(fitted["terms"]) == {"dog", "cat"}
    found = call("search", hybrid, "--logic", '"dog"', "--set", f"calibration={out}", "--json")
    best, other = json.loads(found.stdout)["passages"]
    assert (best["id"], other["id"]) == ("b", "a")
    # Platt's targets for one label of each kind are 2/3 and 1/3, and two scores are met exactly
    assert (best["score"], other["score"]) == pytest.approx((2 / 3, 1 / 3), abs=0.01)
    unlabelled = call("search", hybrid, "--logic", '"red"', "--set", f"calibration={out}", "--json")
    assert all(0 < passage["score"] < 1 for passage in json.loads(unlabelled.stdout)["passages"])


def test_calibrating_writes_json_for_machines(hybrid: Path, tmp_path: Path) -> None:
    labels = write_labels(tmp_path / "l.jsonl", ("dog", "b", True), ("dog", "a", False))
    made = json.loads(call("calibrate", hybrid, labels, "--out", tmp_path / "f.json", "--json").stdout)
    assert (made["labels"], made["relevant"], made["source"], list(made["terms"])) == (2, 1, "dense", ["dog"])


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ('{"term": "dog", "passage": "b", "relevant": true}\n\n[', "l.jsonl:3: invalid JSON"),
        ("[1]", "l.jsonl:1: a mapping is needed"),
        ('{"term": "?!", "passage": "b", "relevant": true}', "l.jsonl:1: `term`"),
        ('{"term": "dog", "relevant": true}', "l.jsonl:1: `passage`"),
        ('{"term": "dog", "passage": "b", "relevant": 1}', "l.jsonl:1: `relevant`"),
        ('{"term": "dog", "passage": "b", "relevant": true}\n' * 2, r"l.jsonl:2: .* already at .*l.jsonl:1"),
        ('{"term": "dog", "passage": "b", "relevant": true}', "l.jsonl: a calibration needs labels of both kinds"),
        (
            '{"term": "dog", "passage": "b", "relevant": true}\n{"term": "dog", "passage": "z", "relevant": false}',
            "l.jsonl:2: the index holds no passage 'z'",
        ),
    ],
)
def test_labels_that_cannot_be_used_are_refused_with_their_line(
    hybrid: Path, tmp_path: Path, rows: str, reason: str
) -> None:
    (tmp_path / "l.jsonl").write_text(rows)
    error = call("calibrate", hybrid, tmp_path / "l.jsonl", "--out", tmp_path / "f.json").exception
    assert isinstance(error, DataError)
    assert re.search(reason, str(error))
    assert not (tmp_path / "f.json").exists()


def test_a_calibration_that_does_not_fit_the_search_is_refused(hybrid: Path, tmp_path: Path) -> None:
    labels, out = write_labels(tmp_path / "l.jsonl", ("dog", "b", True), ("dog", "a", False)), tmp_path / "f.json"
    call("calibrate", hybrid, labels, "--out", out)
    fitted = json.loads(out.read_bytes())

    def error(*more: object) -> Exception:
        found = call("search", hybrid, "--logic", '"dog"', "--set", f"calibration={out}", *more).exception
        assert isinstance(found, Exception)
        return found

    with pytest.raises(ConfigError, match="of source dense, not bm25"):
        raise error("--set", "source=bm25")
    assert call("search", hybrid, "--logic", '"dog"', "--set", "calibrate=self").exit_code != 0
    for change, reason in (
        ({"model": "other"}, "another model's cosines"),
        ({"general": {"threshold": 0, "slope": -1}}, "not a calibration"),
        ({"source": "web"}, "not a calibration"),
        ({"terms": [1]}, "not a calibration"),
    ):
        out.write_text(json.dumps(fitted | change))
        with pytest.raises(ArtifactError, match=reason):
            raise error()
    out.unlink()
    with pytest.raises(ArtifactError, match="cannot be read"):
        raise error()


def test_a_logical_query_that_does_not_parse_points_at_its_fault(hybrid: Path) -> None:
    error = call("search", hybrid, "--logic", '"red" AND dog').exception
    assert isinstance(error, ExpressionError)
    assert "^^^" in str(error)
