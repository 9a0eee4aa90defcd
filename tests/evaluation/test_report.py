"""The report: drawn whole in a real browser, nothing from outside, every text escaped, and the same in MLflow."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from markupsafe import escape

from evaluation.harness.folder import METRICS, QuestionRow
from evaluation.report.cases import draw_plan, find_most_different_cases, find_worst_cases
from evaluation.report.charts import (
    draw,
    draw_legend_mark,
    format_number,
    paint_scatter,
    select_charted_runs,
)
from evaluation.report.command import report
from evaluation.report.page import Table, build_report, format_interval, render_for_terminal
from evaluation.report.runs import Series, compare_runs, conclude, load_run_folders
from revelator.errors import ArtifactError, ConfigError
from revelator.files import sha256_file
from revelator.trace import Node, Passage, Trace
from tests.evaluation.report_runs import BITE, write_runs

KINDS = {
    "quality-tokens",
    "quality-latency",
    "coverage",
}


@pytest.fixture(scope="module")
def runs(registered: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Runs of version 1 of the registered revelator."""
    folder = tmp_path_factory.mktemp("runs")
    manifest = sha256_file(registered / "adapters" / "1" / "manifest.json")
    return write_runs(folder, manifest)


@pytest.fixture(scope="module")
def made(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    arguments = [*map(str, runs), "--out", str(out), "--no-mlflow"]
    done = CliRunner().invoke(report, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return out


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_whole_and_readable_in_a_browser(browser: Any, made: Path, width: int, scheme: str) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on(
        "request", lambda request: said.append(request.url) if not request.url.startswith(("file:", "data:")) else None
    )
    page.goto((made / "report.html").as_uri())
    assert said == []
    assert page.title() == "Evaluation report"
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page is wider than its window"
    charts = page.evaluate(CHARTS)
    assert {chart["kind"] for chart in charts} == KINDS
    for chart in charts:
        assert chart["width"] >= 0.8 * min(width - 80, 300) and chart["height"] > 40, chart
        assert chart["marks"] > 0 and chart["outside"] == [], chart
        assert chart["smallest"] >= 8.5, f"text of {chart['smallest']} px in {chart}"
        assert chart["contrast"] >= 3 and chart["textContrast"] >= 4.5, chart
    assert page.evaluate(CONTRAST) >= 4.5, "the page's text stands out too little"
    for grid in page.evaluate(GRIDS):
        for row in grid["rows"]:
            assert row["left"] == grid["left"] and row["right"] == grid["right"], "the grid of charts has a hole"
            assert len(set(row["heights"])) == 1, "charts beside each other end at different heights"
    for table in page.evaluate(TABLES):
        assert table["says"] == table["scrolls"], "a table says that it scrolls where it does, and only there"
        assert table["widths"] <= 1, "columns of figures have one width"
    assert width == 1400 or any(table["scrolls"] for table in page.evaluate(TABLES))
    for case in page.query_selector_all(".case"):
        left, right = (side.bounding_box() for side in case.query_selector_all(".sides > div"))
        beside = abs(left["y"] - right["y"]) < 1
        assert beside == (width == 1400) and left["width"] >= 280
    page.close()


LUMINANCE = """
const rgb = text => (text.match(/[\\d.]+/g) || []).slice(0, 3).map(Number);
const linear = v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
const light = text => { const [r, g, b] = rgb(text).map(v => linear(v / 255));
  return .2126 * r + .7152 * g + .0722 * b; };
const ratio = (one, other) => {
  const [a, b] = [light(one), light(other)].sort((x, y) => y - x); return (a + .05) / (b + .05); };
const paper = getComputedStyle(document.body).backgroundColor;
"""
CHARTS = (
    "() => {"
    + LUMINANCE
    + """
  return [...document.querySelectorAll('figure[data-chart]')].map(figure => {
    const svg = figure.querySelector('svg.chart'), box = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll('text')], scale = box.width / svg.viewBox.baseVal.width;
    const outside = texts.filter(t => { const b = t.getBoundingClientRect();
      return b.left < box.left - 1 || b.right > box.right + 1 || b.top < box.top - 1 || b.bottom > box.bottom + 1; });
    return {kind: figure.dataset.chart, width: box.width, height: box.height,
      marks: svg.querySelectorAll('[style*="--s"]').length, outside: outside.map(t => t.textContent),
      smallest: Math.min(...texts.map(t => parseFloat(getComputedStyle(t).fontSize) * scale)),
      contrast: Math.min(21, ...[...svg.querySelectorAll('use[style*="--s"]')]
        .map(mark => ratio(getComputedStyle(mark).fill, paper))),
      textContrast: Math.min(...texts.map(t => ratio(getComputedStyle(t).fill, paper)))};
  });
}"""
)
GRIDS = """() => [...document.querySelectorAll('.charts')].map(grid => {
  const box = grid.getBoundingClientRect(), rows = new Map();
  for (const figure of grid.children) {
    const {left, right, top, height} = figure.getBoundingClientRect(), row = rows.get(Math.round(top)) || [];
    rows.set(Math.round(top), [...row, {left, right, height}]);
  }
  return {left: Math.round(box.left), right: Math.round(box.right), rows: [...rows.values()].map(row => ({
    left: Math.round(Math.min(...row.map(f => f.left))), right: Math.round(Math.max(...row.map(f => f.right))),
    heights: row.map(f => Math.round(f.height))}))};
})"""
TABLES = """() => [...document.querySelectorAll('.scroll')].map(box => {
  const widths = [...box.querySelectorAll('thead th:not(:first-child)')].map(th => th.getBoundingClientRect().width);
  return {scrolls: box.scrollWidth > box.clientWidth, says: box.querySelector('.more').offsetHeight > 0,
    widths: Math.max(...widths) - Math.min(...widths)};
})"""
CONTRAST = (
    "() => {"
    + LUMINANCE
    + "return Math.min(...[...document.querySelectorAll('p, h1, h2, td, .range, .titles, pre, summary')]"
    + ".map(e => ratio(getComputedStyle(e).color, paper))); }"
)


class Tags(HTMLParser):
    """Every tag with its attributes, and every text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_asks_for_nothing_and_no_text_of_a_question_or_document_becomes_markup(made: Path) -> None:
    found = Tags((made / "report.html").read_text(encoding="utf-8"))
    assert not {"script", "img", "iframe", "object", "embed", "base", "form"} & {tag for tag, _ in found.tags}
    assert all(not name.startswith("on") for _, attributes in found.tags for name in attributes)
    links = [value for _, attributes in found.tags for name, value in attributes.items() if name in ("href", "src")]
    assert links and all(str(link).startswith(("#", "data:")) for link in links)
    assert BITE in found.text


def test_every_id_of_the_page_is_its_own_and_every_reference_to_one_is_met(made: Path) -> None:
    page = (made / "report.html").read_text(encoding="utf-8")
    ids = [attributes["id"] for _, attributes in Tags(page).tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', page)) <= set(ids)


def test_the_page_says_at_the_top_what_follows_and_marks_the_best(made: Path, runs: list[Path]) -> None:
    auto, rag, direct, *_ = load_run_folders(runs)
    page = (made / "report.html").read_text(encoding="utf-8")
    said = escape(conclude(auto, [rag, direct], "f1"))
    gaps = [compare_runs(run, auto, ["f1"])["f1"] for run in (rag, direct)]
    gap = format_interval(max(gaps, key=itemgetter("value")), "f1", sign=True)
    assert f"{gap.value} F1 {gap.interval}" in said and said in page[: page.index("<nav>")]
    [section] = build_report([auto, rag, direct], against="auto").sections
    quality, difference, cost, _, parts, *_ = section.tables
    best = max((auto, rag, direct), key=lambda run: run.figures["f1"]["value"])
    assert [system for system, mark in _list_marks(quality, "f1") if mark == "best"] == [best.name]
    assert [system for system, mark in _list_marks(cost, "tokens_in") if mark == "best"] == ["direct"]
    assert {mark for _, mark in _list_marks(difference, "f1")} == {"worse"}
    relevance = next(cells for system, _, cells in parts.rows if system == "auto: relevance")
    assert [cell.value for cell in relevance][-1] == "0.75" and "direct" not in {row[0][:6] for row in parts.rows}
    assert {str(count) for _, count, _ in parts.rows} == {"24"}
    assert parts.note.endswith(f"auto {auto.seen}; {rag.name} {rag.seen}."), "once for each system, not in each row"


def test_groups_and_routes_are_tables_with_a_row_for_each_run(runs: list[Path]) -> None:
    auto, rag, direct, *_ = load_run_folders(runs)
    [section] = build_report([auto, rag, direct]).sections
    tables = {table.title: table for table in section.tables}
    hops = tables["By hops"]
    assert [system for system, *_ in hops.rows] == [
        f"{n} hops: {run.name}" for n in (2, 3, 4) for run in (auto, rag, direct)
    ]
    figure = auto.metrics["groups"]["hops"]["2"]["f1"]
    assert hops.rows[0][2][list(hops.measures).index("f1")] == format_interval(figure, "f1")
    routes = {system: (n, dict(zip(tables["Routes"].measures, map(str, cells), strict=True)))
              for system, n, cells in tables["Routes"].rows}  # fmt: skip
    n, taken = routes["auto: single"]
    assert taken["complex"] == str(sum(row.route == "complex" for row in auto.rows if row.gold_route == "single"))
    assert int(n.value) == sum(map(int, taken.values()))


def test_a_terminal_shows_few_systems_as_columns_and_many_as_rows(runs: list[Path]) -> None:
    auto, rag, *_ = load_run_folders(runs)
    [section] = build_report([auto, rag]).sections
    few, table = render_for_terminal(section.tables[0], "multi-hop"), section.tables[0]
    assert [column.header for column in few.columns] == ["system", "auto", rag.name]
    assert [*few.columns[1].cells][:2] == ["24 seen: unknown", str(table.rows[0][2][0])]
    many = render_for_terminal(replace(table, rows=table.rows * 4), "multi-hop")
    assert [column.header for column in many.columns] == ["system", "questions", *table.measures.values()]
    assert many.row_count == 8


def _list_marks(table: Table, measure: str) -> list[tuple[str, str]]:
    return [(system, cells[list(table.measures).index(measure)].mark) for system, _, cells in table.rows]


def test_what_follows_is_better_worse_or_undecided_and_a_bound_competes_with_none(runs: list[Path]) -> None:
    auto, rag, *_ = load_run_folders(runs)
    weak, strong = (replace(auto, rows=[_score(row, f1) for row in auto.rows]) for f1 in (0.0, 1.0))
    bound = replace(strong, run=replace(auto.run, system={"kind": "bound", "name": "gold-plan"}))
    named = [replace(run, series=Series(name, 9)) for run, name in ((weak, "weak"), (strong, "strong"))]
    assert conclude(weak, named[1:], "f1") == (
        "strong is better than auto on these 24 questions: +1.000 F1 [+1.000, +1.000]."
    )
    assert conclude(strong, named[:1], "f1").startswith("weak is worse than auto on these 24 questions: -1.000 F1")
    assert conclude(weak, [*named[:1], replace(bound, series=Series("gold-plan", 8))], "f1") == (
        "These 24 questions do not tell weak from auto: +0.000 F1 [+0.000, +0.000]; ask more questions."
    )
    assert conclude(weak, named, "f1").endswith("; of the 2 systems compared: better 1, worse 0, undecided 1.")
    assert "no other run to compare" in conclude(auto, [], "f1")
    assert "no other run has these questions" in conclude(auto, [replace(rag, rows=[])], "f1")


def test_questions_that_ended_in_an_error_are_told_with_what_follows(runs: list[Path]) -> None:
    auto, rag, *_ = load_run_folders(runs)
    late = [replace(row, status="error", error="DeadlineExceeded: no answer within 60 s") for row in rag.rows[:22]]
    other = [replace(row, status="error", error="Unavailable: no connection") for row in rag.rows[22:23]]
    said = conclude(auto, [replace(rag, rows=[*late, *rag.rows[22:]])], "f1")
    count = "22 of 24 questions ended in an error and count as wrong"
    assert said.endswith(f". {rag.name}: {count} (DeadlineExceeded: no answer within 60 s).")
    said = conclude(auto, [replace(rag, rows=[*late, *other, *rag.rows[23:]])], "f1")
    assert said.endswith("count as wrong (22 times DeadlineExceeded: no answer within 60 s).")


def _score(row: QuestionRow, f1: float) -> QuestionRow:
    return replace(row, scores=row.scores | {"f1": f1})


def test_every_chart_and_table_says_how_it_is_made_again(made: Path) -> None:
    text = (made / "report.html").read_text(encoding="utf-8")
    for figure in re.findall(r"<figure.*?</figure>", text, re.S):
        assert "revelator " in figure and "config " in figure and "data " in figure and "adapter " in figure
        assert "a processor, 2 cores" in figure
    for wanted in ("config hash", "adapter", "machine", "command", "against auto", "naive RAG, k=5", "[0."):
        assert wanted in text


def test_differences_are_paired_and_of_shared_questions_alone(runs: list[Path]) -> None:
    auto, rag, direct, *_ = load_run_folders(runs)
    found = compare_runs(rag, auto, ["f1", "tokens_in", "recall"])
    theirs = {row.id: row.scores["f1"] for row in auto.rows}
    gaps = [row.scores["f1"] - theirs[row.id] for row in rag.rows]
    assert found["f1"]["value"] == pytest.approx(sum(gaps) / len(gaps)) and found["f1"]["n"] == len(gaps)
    assert found["tokens_in"]["high"] < 0 and "recall" not in compare_runs(direct, auto, ["recall"])


def test_an_ablation_is_compared_with_the_same_system_without_it(runs: list[Path]) -> None:
    auto, rag, direct, *_ = load_run_folders(runs)
    ablated = replace(
        rag,
        run=replace(rag.run, ablation={"relevance": False}),
        rows=direct.rows,
        series=Series("rag (relevance off)", 7),
    )
    [section] = build_report([auto, rag, ablated], against="auto").sections
    table = section.tables[-1]
    gap = compare_runs(direct, rag, ["f1"])["f1"]
    [(system, _, cells)] = table.rows
    assert table.title == "Ablations" and system == "rag (relevance off)"
    cell = cells[list(table.measures).index("f1")]
    assert replace(cell, mark="") == format_interval(gap, "f1", sign=True)
    [plain] = build_report([auto, rag], against="auto").sections
    assert "Ablations" not in [table.title for table in plain.tables]


def test_the_cases_are_the_worst_and_the_most_different_each_question_once(runs: list[Path]) -> None:
    auto, rag, direct, *_ = load_run_folders(runs)
    scores = sorted(row.scores["f1"] for row in auto.rows)
    shown = [case.right.score for case in find_worst_cases(auto, "f1")]
    assert shown == [f"F1 {score:.2f}" for score in scores[:4] if score < 1] and shown
    right = [row for row in auto.rows if row.scores["f1"] == 1]
    assert right and find_worst_cases(replace(auto, rows=right), "f1") == []
    cases = find_most_different_cases(auto, [rag, direct], "f1")
    assert len({case.row.id for case in cases}) == 4
    assert sum(case.about.startswith("auto is better by 1.00") for case in cases) == 2


def test_runs_tables_and_page_are_under_the_registered_version(
    runs: list[Path], registered: Path, tmp_path: Path
) -> None:
    import mlflow

    from evaluation.report.command import REPORT_TAG
    from revelator import registry

    arguments = [*map(str, runs), "--out", str(tmp_path / "out"), "--home", str(registered), "--json"]
    done = CliRunner().invoke(report, arguments, catch_exceptions=False)
    said = json.loads(done.output.splitlines()[-1])
    assert said["versions"] == [1]
    version = registry.resolve(registry.NAME, 1)
    assert version.tags[REPORT_TAG] == said["run_id"]
    client = mlflow.MlflowClient()
    parts = {artifact.path for artifact in client.list_artifacts(said["run_id"])}
    assert {"report.html"} == parts
    parent = client.get_run(said["run_id"])
    stored = Path(client.download_artifacts(said["run_id"], "report.html", str(tmp_path)))
    assert stored.read_bytes() == Path(said["page"]).read_bytes(), "MLflow keeps the page itself"
    description = parent.data.tags["mlflow.note.content"]
    assert list(said["conclusions"]) == ["multi-hop", "negations"]
    assert all(conclusion in description for conclusion in said["conclusions"].values())
    children = client.search_runs(
        [parent.info.experiment_id], f"tags.`mlflow.parentRunId` = '{said['run_id']}'", max_results=20
    )
    assert len(children) == 5
    own = next(run for run in children if run.data.tags["system"] == "auto")
    [auto, *_] = load_run_folders(runs)
    assert own.data.metrics["f1"] == pytest.approx(auto.figures["f1"]["value"])
    assert own.data.metrics["f1_low"] <= own.data.metrics["f1"] <= own.data.metrics["f1_high"]
    assert own.data.tags["version"] == "1"
    [model] = re.findall(r"m-[0-9a-f]{16,}", version.source)
    metrics = {metric.key: metric.value for metric in client.get_logged_model(model).metrics or []}
    assert metrics["multi-hop/auto/f1"] == own.data.metrics["f1"] and "negations/logic/f1" in metrics


def test_a_report_beside_its_runs_is_no_run(runs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "runs"
    shutil.copytree(runs[0], out / "auto")
    for _ in range(2):  # the second time `*` names the page and the summary of the first
        named = [str(path) for path in sorted(out.iterdir())]
        done = CliRunner().invoke(report, [*named, "--out", str(out), "--no-mlflow"], catch_exceptions=False)
        assert done.exit_code == 0 and "there is no other run to compare it with" in done.output
    with pytest.raises(ConfigError, match="no run is named"):
        CliRunner().invoke(report, [str(out / "report.html"), "--out", str(out)], catch_exceptions=False)


def test_a_run_that_is_not_whole_is_refused_before_anything_is_written(runs: list[Path], tmp_path: Path) -> None:
    shutil.copytree(runs[0], tmp_path / "broken")
    (tmp_path / "broken" / METRICS).unlink()
    with pytest.raises(ArtifactError, match=r"metrics\.json is missing"):
        CliRunner().invoke(report, [str(tmp_path / "broken"), "--out", str(tmp_path / "out")], catch_exceptions=False)
    assert not (tmp_path / "out").exists()
    with pytest.raises(ConfigError, match="no run of a system 'mine'"):
        CliRunner().invoke(
            report, [str(runs[0]), "--against", "mine", "--out", str(tmp_path / "out")], catch_exceptions=False
        )
    with pytest.raises(ArtifactError, match=r"run\.json is missing"):
        CliRunner().invoke(report, [str(tmp_path), "--out", str(tmp_path / "out")], catch_exceptions=False)


def test_a_plan_is_drawn_leaf_by_leaf_with_what_feeds_it() -> None:
    plan = "(Who wrote A? + Who runs B?) * Did {writer} know {head}?"
    drawing = draw_plan(plan)
    assert "1  Who wrote A?" in drawing and "[{writer} is {1}, {head} is {2}]" in drawing
    passage = Passage("p", "A page", "text", 1.0)
    nodes = [
        Node("1", "atomic", "q", documents=[passage], answers=["<b>Ana"], detail={"kept": ["p"]}),
        Node("2", "atomic", "q", error="no answer was found"),
        Node("3", "atomic", "q"),
    ]
    drawing = draw_plan(plan, Trace("q", "compile", nodes=nodes))
    assert "→ &lt;b&gt;Ana" in drawing and "<b>A page</b>" in drawing and "→ no answer was found" in drawing
    assert "no plan" in draw_plan("") and "no plan" in draw_plan("((") and "&lt;b&gt;" in draw_plan("Who is <b>?")
    assert "1. q" in draw_plan("", Trace("q", "direct", nodes=nodes[:1]))


def test_charts_take_any_scale() -> None:
    one, wide = {"n": 9, "value": 0.0, "low": 0.0, "high": 0.0}, {"n": 9, "value": 5e4, "low": 4e4, "high": 6e4}
    tiny = {"n": 9, "value": 0.5, "low": 0.4, "high": 0.6}
    for across in ([one], [wide], [tiny, wide], [one, wide]):
        points = [(Series("s", place), estimate, tiny) for place, estimate in enumerate(across)]
        text = draw("a", "a chart", partial(paint_scatter, points=points, x_label="<b> $x$", y_label="y"))
        assert not re.search(r"\b(nan|inf)\b", text) and "&lt;b&gt; $x$" in text
    assert format_number(12_500) == "12.5k" and str(format_interval(wide, "tokens_in")) == "50,000 [40,000, 60,000]"


def test_thirty_two_systems_have_a_mark_and_colour_each() -> None:
    assert len({draw_legend_mark(Series("x", number)) for number in range(32)}) == 32


def test_of_many_runs_those_with_an_ablation_are_in_tables_alone(runs: list[Path]) -> None:
    first, *_ = load_run_folders(runs)
    ablated = replace(first, run=replace(first.run, ablation={"relevance": False}))
    assert select_charted_runs([first, ablated]) == [first, ablated]
    assert select_charted_runs([first, *[ablated] * 8]) == [first]
    assert len(select_charted_runs([ablated] * 9)) == 9
