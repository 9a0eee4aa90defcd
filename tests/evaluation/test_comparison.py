"""The comparison in a page of results: what stands in its tables, and that each command keeps what the other wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evaluation.harness.folder import Cost, QuestionRow, RowWriter, Run, begin_run
from evaluation.harness.run_metrics import write_metrics
from evaluation.report.command import asked
from evaluation.report.comparison import SECTION, section
from evaluation.report.runs import load
from evaluation.report.sections import put
from revelator.errors import ConfigError

BENCHMARK = "MuSiQue dev"


def made(
    folder: Path, system: str, right: list[int], benchmark: str = BENCHMARK, kind: str = "strategy", **more: Any
) -> Path:
    """A run that answers the questions in `right`, of ten; each takes one step, and one more where it is right."""
    about = {
        "name": benchmark,
        "version": "1",
        "normaliser": "musique",
        "answers": "aliases",
        "files": {"q": "ab" * 32},
    }
    ids = tuple(f"q{n}" for n in range(10))
    run = Run(
        {"n": str(folder)}, f"revelator eval run {benchmark}.yaml", about, {"kind": kind, "name": system},
        more.get("ablation", {}), ids, code="01" * 32, machine="two cores", generator="embedded",
    )  # fmt: skip
    begin_run(folder, run)
    writer = RowWriter(folder)
    for n, id in enumerate(ids):
        value = float(n in right)
        scores = {"ndcg@10": value} if kind == "ranking" else {"em": value, "acc": value, "f1": value}
        cost = Cost(100, 3, 1, {"route": 1}, 1, 1 + (n in right), 0.5, 0.4)
        row = QuestionRow(id, benchmark, "?", ("x",), status="complete", negations=n % 2, scores=scores, cost=cost)
        writer.append(row)
    writer.close()
    write_metrics(folder, run)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("compared")
    folders = [
        made(place / "auto", "auto", [0, 1, 2, 3, 4, 5]),
        made(place / "naive", "naive-5", [0], kind="baseline"),
        made(place / "switched", "naive-5", [0, 1], kind="baseline", ablation={"k": 1}),
        made(place / "logic", "logical ranking", [*range(10)], "ITLR", "ranking"),
        made(place / "least", "logical ranking", [0, 2], "ITLR", "ranking",
             ablation={"operators": {"conjunction": "min", "disjunction": "max", "negation": "reciprocal"}}),
    ]  # fmt: skip
    return section(load(folders), "revelator eval report RUNS", "2026-01-02")


def rows(text: str, name: str) -> list[list[str]]:
    found = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found]


def test_systems_stand_beside_each_other_with_paired_differences(text: str) -> None:
    quality, difference, cost, papers = rows(text, "naive-5")
    assert quality[1:3] == ["10", "0.100 [0.000, 0.300]"]
    assert difference[2].startswith("**-0.500 [-0.800, -0.200]"), "set off where the interval leaves out 0"
    assert cost[2].startswith("100") and "0.50" in cost[-2]
    assert papers[1:4] == ["10.0 / 10.0 / 10.0", "11.5 / 15.9 / 20.8", "13.8 / 15.2 / 22.8"]
    assert len(rows(text, "auto")) == 2, "it is not compared with itself"


def test_a_switch_is_compared_with_the_same_system_without_it(text: str) -> None:
    [line] = rows(text, "naive-5 (k=1)")
    assert line[1:3] == ["10", "+0.100 [+0.000, +0.300]"] and line[5] == "+0.10 [+0.00, +0.30]"


def test_operators_stand_beside_the_papers_by_negations(text: str) -> None:
    [least] = rows(text, "min, max, reciprocal")
    assert least[2:] == ["0.400", "0.000", "0.86"]
    assert rows(text, "product, sum, complement")[0][-1] == "0.97"


def test_what_was_not_run_is_named_with_its_reason_and_commands_stand_there(text: str) -> None:
    assert "Not run: self-ask, ircot, adaptive-rag, probtree. Each prompts a language model" in text
    assert "`revelator eval run MuSiQue dev.yaml`" in text and "; `revelator eval report RUNS`" in text


def test_a_section_is_written_between_its_marks_and_the_rest_of_the_page_stays(tmp_path: Path) -> None:
    page = tmp_path / "results.md"
    marks = "".join(f"<!-- {name} -->\n<!-- end of {name} -->\n" for name in ("world", SECTION))
    page.write_text(f"# Results\n{marks}## Reproduce\n")
    put(page, "world", "| a | table |")
    put(page, SECTION, "## Compared\n\n1 \\1 g<0>")
    once = page.read_text()
    assert "<!-- comparison -->\n## Compared\n\n1 \\1 g<0>\n<!-- end of comparison -->" in once
    assert "<!-- world -->\n| a | table |\n<!-- end of world -->" in once and "## Reproduce" in once
    put(page, SECTION, "## Later")
    assert "## Later" in page.read_text() and "## Compared" not in page.read_text()
    page.write_text("# Another page\n")
    with pytest.raises(ConfigError, match="no place for 'comparison'"):
        put(page, SECTION, "## Lost")
    assert page.read_text() == "# Another page\n"


def test_a_command_names_a_whole_folder_by_its_star(tmp_path: Path) -> None:
    runs = [tmp_path / "all" / name for name in ("a", "b")] + [tmp_path / "some" / "c"]
    for run in [*runs, tmp_path / "some" / "d"]:
        run.mkdir(parents=True)
        (run / "run.json").write_text("{}")
    said = asked(["eval", "report", *map(str, runs), "--out", "a page"], runs)
    assert said == f"revelator eval report --out 'a page' {tmp_path}/all/* {tmp_path}/some/c"
