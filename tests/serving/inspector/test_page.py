"""The page in a real Chromium, driven by its keyboard wherever a person would use it."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from revelator.trace import Node, Trace
from serving.inspector.runs import StoredRun
from serving.knowledge.sources import Sources
from tests.serving.inspector.test_chat import Shelved
from tests.serving.inspector.world import PLAN, QUESTION, Asked, inspecting, runs_in

TREE = (
    f'{{"question": "{QUESTION}", "children": [{{"question": "Who directed UHF?", "search": {{"name": "UHF"}}}}, '
    '{"question": "Where was [1] born?", "direct": true}]}'
)
expect.set_options(timeout=20_000)


@pytest.fixture
def page(browser, address):
    """A page of the inspector; at the end, nothing was said on its console and nothing was asked of another host."""
    yield from opened(browser, address)


def opened(browser, address: str, **options: object) -> Iterator:
    context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **options})
    page = context.new_page()
    page.set_default_timeout(20_000)
    faults: list[str] = []
    page.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: request.url.startswith((address, "blob:")) or faults.append(request.url))
    page.goto(address)
    expect(page.locator(".server")).not_to_have_count(0)
    yield page
    assert faults == []
    context.close()


def list_violations(page) -> list[str]:
    """What axe-core calls serious or critical, with the elements."""
    found = Axe().run(page).response["violations"]
    grave = [each for each in found if each["impact"] in ("serious", "critical")]
    return [f"{each['id']}: {[node['html'][:120] for node in each['nodes']]}" for each in grave]


def ask(page, question: str = QUESTION) -> None:
    page.keyboard.press("/")
    page.keyboard.type(question)
    page.keyboard.press("Enter")
    kept(page)


def kept(page) -> None:
    """Returns when the run is over and stands in the list."""
    expect(page).to_have_url(re.compile(r"\?run="))
    id = page.url.partition("?run=")[2].partition("&")[0]
    expect(page.locator(f".runs [aria-current][href='/?run={id}']")).to_have_count(1)


def answer(page):
    return page.locator(".answer").first


def test_ask_break_the_plan_mend_it_run_it_again_and_reload(page):
    ask(page)
    expect(answer(page)).to_contain_text("Detroit")
    text = page.get_by_role("textbox", name="Plan")
    expect(text).to_have_value(PLAN)

    page.keyboard.press("Escape")
    page.keyboard.press("e")
    page.keyboard.press("Control+A")
    page.keyboard.type("Who directed {film}? * When was {director} born?")
    fault = page.locator(".fault-whole")
    expect(fault).to_contain_text("no earlier question gives {film} its value")
    assert "\n" + " " * 15 + "^^^^^^" in fault.locator("pre").inner_text()
    expect(page.get_by_role("button", name="Run what has changed")).to_be_disabled()

    page.keyboard.press("Control+A")
    page.keyboard.type("Who directed UHF? * When was {director} born?")
    expect(page.locator(".fine")).to_contain_text("A * B, 2 leaves")
    page.keyboard.press("Control+Enter")
    expect(answer(page)).to_contain_text("1953")
    expect(page.locator(".row", has_text="Who directed UHF?")).to_contain_text("from the earlier run")

    page.reload()
    expect(answer(page)).to_contain_text("1953")
    expect(text).to_have_value("Who directed UHF? * When was {director} born?")


def test_the_fault_under_the_cursor_is_told_in_full_and_f8_goes_on(page):
    page.keyboard.press("e")
    page.keyboard.type("Who is {𝔸}? * Where? + What is {b}?")
    whole, others = page.locator(".fault-whole"), page.locator(".fault-line")
    expect(others).to_have_count(2)
    for key, told in [("Home", "{𝔸}"), ("F8", "{𝔸}"), ("F8", "after *"), ("F8", "{b}"), ("F8", "{𝔸}")]:
        page.keyboard.press(key)
        expect(whole).to_contain_text(told)
    marked = page.locator(".underlay .fault").all_inner_texts()
    assert marked == ["{𝔸}", "Where?", "{b}"]


def test_a_valid_plan_may_be_run_and_is_told_its_shape(page):
    page.keyboard.press("e")
    page.keyboard.type("Who directed UHF? + Who directed UHF?")
    expect(page.locator(".fine")).to_contain_text("A + B, 2 leaves")
    expect(page.locator(".fault-whole")).to_have_count(0)
    expect(page.get_by_role("button", name="Run it all")).to_be_enabled()


@pytest.mark.parametrize(
    ("language", "plan", "edited"),
    [
        ("logic", '"UHF"', '"UHF" OR "director"'),
        ("art", TREE, TREE.replace("Where was [1]", "When was [1]")),
    ],
)
def test_a_plan_of_another_language_is_edited_and_run_again_in_it(page, address, language, plan, edited):
    reply = httpx.post(f"{address}/api/runs", json={"question": QUESTION, "plan": plan, "language": language})
    page.goto(f"{address}/?run={json.loads(reply.text.splitlines()[-1])['run']}")
    text = page.get_by_role("textbox", name="Plan")
    expect(text).to_have_value(plan)
    expect(page.locator(".graph")).to_be_hidden()
    text.fill(edited)
    expect(page.locator(".fine")).to_be_visible()
    text.press("Control+Enter")
    kept(page)
    expect(text).to_have_value(edited)
    run = httpx.get(f"{address}/api/runs/{page.url.partition('?run=')[2]}").json()
    assert (run["trace"]["plan"], run["trace"]["plan_language"]) == (edited, language)


def test_markup_in_a_document_is_shown_as_text(page):
    ask(page)
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".document").first).to_contain_text("<script>window.injected = true</script><img")
    assert page.locator(".document script, .document img").count() == 0
    assert page.evaluate("window.injected") is None


def test_a_citation_opens_the_passage_that_says_it(page):
    ask(page)
    cited = page.locator(".sources li")
    expect(cited).to_have_text(["UHF: It is Jay Levey.", "Jay Levey: It is Detroit."])  # no quotation: nobody wrote it
    cited.nth(1).get_by_role("button", name="Jay Levey").click()
    expect(page.locator('[aria-selected="true"]')).to_contain_text("Where was Jay Levey born?")
    shown = page.locator(".document[open]")
    expect(shown).to_contain_text("Jay Levey was born in Detroit")
    expect(shown.locator("mark")).to_have_text("Detroit")


def test_the_tree_is_walked_folded_and_unfolded_with_the_keys_of_a_tree(page):
    ask(page)
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    chosen = page.locator('[aria-selected="true"]')
    assert page.locator("main :focus").get_attribute("role") == "treeitem"
    visible = page.locator(".row:visible")
    page.keyboard.press("End")
    expect(chosen).to_contain_text("Where was Jay Levey born?")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(chosen).to_have_attribute("aria-expanded", "true")
    before = visible.count()
    page.keyboard.press("ArrowLeft")
    expect(visible).to_have_count(before - 2)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(chosen).to_contain_text("Jay Levey")
    page.keyboard.press("ArrowLeft")
    expect(chosen).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()


def test_two_runs_stand_side_by_side_and_are_shared_by_their_address(page, browser):
    ask(page)
    page.get_by_role("textbox", name="Plan").fill("Who directed UHF? * When was {director} born?")
    page.get_by_role("button", name="Run it all").click()
    expect(answer(page)).to_contain_text("1953")
    kept(page)
    page.keyboard.press("c")
    expect(page.locator(".differences")).to_contain_text("The answers differ.")
    assert page.locator(".plan-shown mark").all_inner_texts() == ["When", "Where"]
    page.locator(".row", has_text="Who directed UHF?").first.click()
    expect(page.locator('[aria-selected="true"]')).to_have_count(2)
    other = browser.new_page()
    other.goto(page.url)
    expect(other.locator(".answer")).to_have_text([re.compile("1953"), re.compile("Detroit")])
    other.close()


def test_two_model_versions_answer_side_by_side(page):
    page.get_by_label("beside").select_option(index=2)
    ask(page)
    expect(page.locator(".differences")).to_contain_text("The answers are equal.")
    expect(page.locator(".detail")).to_have_text([re.compile("version 7"), re.compile("version 8")])


def test_a_plan_fills_in_while_it_runs_and_escape_stops_it(browser, tmp_path):
    asked = Asked("one", "1")
    asked.world.gate("Where was Jay Levey born?")
    with inspecting([asked.server()], runs_in(tmp_path)) as url:
        for page in opened(browser, url):
            page.keyboard.press("/")
            page.keyboard.type(QUESTION)
            page.keyboard.press("Enter")
            expect(page.locator(".row.ok", has_text="Who directed UHF? → Jay Levey")).to_be_visible()
            expect(page.locator(".row.running", has_text="Where was Jay Levey born?")).to_be_visible()
            expect(page.get_by_role("textbox", name="Plan")).to_have_value(PLAN)
            graph = page.get_by_role("group", name="Plan graph")
            expect(graph.locator(".leaf")).to_contain_text(
                [re.compile("1 +Who directed UHF.Jay Levey"), re.compile("2 +Where was Jay Levey"), "Answer…"]
            )
            expect(graph.locator(".leaf.running")).to_have_count(1)
            expect(graph.locator("path")).to_have_count(2)
            graph.locator(".leaf").first.click()
            expect(page.locator('[aria-selected="true"]')).to_contain_text("Who directed UHF?")
            page.keyboard.press("Escape")
            expect(page.locator(".head")).to_contain_text("stopped")
            assert asked.left.wait(20)


INSIDE = """() => {
  const boxes = [...document.querySelectorAll(".graph .leaf")].map((box) => box.getBoundingClientRect());
  const frame = document.querySelector(".graph .edges").getBoundingClientRect();
  return [...document.querySelectorAll(".graph path")].flatMap((path) =>
    Array.from({ length: 101 }, (_, n) => path.getPointAtLength((path.getTotalLength() * n) / 100)).filter(({ x, y }) =>
      boxes.some((box) => frame.left + x > box.left + 1 && frame.left + x < box.right - 1 &&
        frame.top + y > box.top + 1 && frame.top + y < box.bottom - 1)));
}"""


@pytest.mark.parametrize("width", [1400, 400])
def test_no_line_of_the_plan_graph_runs_through_a_box(browser, address, width):
    for page in opened(browser, address, viewport={"width": width, "height": 900}):
        ask(page)
        plan = "Who directed UHF? * (When was {director} born? + Where was {director} born? * Who sank {place}?)"
        page.get_by_role("textbox", name="Plan").fill(plan)
        page.get_by_role("button", name="Run it all").click()
        expect(page.locator(".graph .leaf")).to_have_count(5)
        kept(page)
        expect(page.locator(".graph path")).to_have_count(5)
        assert page.evaluate(INSIDE) == []


def test_a_server_that_is_down_is_told_with_what_to_do(browser, tmp_path):
    from revelator.errors import Unavailable

    down = Unavailable("no connection", where="127.0.0.1:8001", hint="`revelator serve` starts one")
    with inspecting([Asked("one", "1", error=down).server()], runs_in(tmp_path)) as url:
        context = browser.new_context()
        page = context.new_page()  # the refused request itself is named on the console
        page.goto(url)
        page.locator("#question").fill(QUESTION)
        page.keyboard.press("Enter")
        expect(page.locator(".notice.bad")).to_contain_text("`revelator serve` starts one")
        context.close()


def test_a_question_that_was_put_while_the_page_loads_goes_on(browser, tmp_path):
    asked = Asked("one", "1")
    asked.world.gate("Where was Jay Levey born?")
    with inspecting([asked.server()], runs_in(tmp_path)) as url, closing(browser.new_context()) as context:
        page = context.new_page()
        held: list = []
        page.route("**/api/servers", lambda route: held.append(route))
        with page.expect_request("**/api/servers"):
            page.goto(url, wait_until="commit")
        page.locator("#question").fill(QUESTION)
        page.keyboard.press("Enter")
        running = page.locator(".row.running", has_text="Where was Jay Levey born?")
        expect(running).to_be_visible()
        held.pop().continue_()
        expect(page.locator(".server")).to_have_count(1)
        expect(running).to_be_visible()
        page.keyboard.press("Escape")
        assert asked.left.wait(20)


def test_a_plan_that_a_server_refuses_stays_in_its_box(browser, tmp_path):
    plan = " + ".join(f"Who directed film {n}?" for n in range(40))
    with inspecting([Asked("one", "1").server()], runs_in(tmp_path)) as url, closing(browser.new_page()) as page:
        page.goto(url)
        ask(page)
        box = page.get_by_role("textbox", name="Plan")
        box.fill(plan)
        page.get_by_role("button", name="Run it all").click()
        expect(page.locator(".notice.bad")).to_contain_text("the limit leaves is 32")
        expect(box).to_have_value(plan)


def test_runs_are_searched_and_filtered_and_a_plan_by_hand_is_marked(browser, tmp_path):
    with inspecting([Asked("one", "1").server()], runs_in(tmp_path)) as url:
        for page in opened(browser, url):
            ask(page)
            page.get_by_role("textbox", name="Plan").fill("Who directed UHF? * When was {director} born?")
            page.get_by_role("button", name="Run it all").click()
            expect(answer(page)).to_contain_text("1953")
            kept(page)
            expect(page.locator(".head")).to_contain_text("plan by hand")
            runs, search = page.locator(".runs li"), page.get_by_role("searchbox", name="Search runs")
            expect(runs).to_have_count(2)
            expect(runs.first).to_contain_text("plan by hand")
            expect(runs.last).not_to_contain_text("plan by hand")
            search.fill("detroit born")
            expect(runs).to_have_count(1)
            expect(runs).to_contain_text("Detroit")
            expect(page.locator("#runs")).to_contain_text("1 of 2 runs")
            search.fill("zebra")
            expect(page.locator("#runs")).to_contain_text("None of 2 runs")
            search.fill("")
            page.get_by_role("combobox", name="Filter runs").select_option("plan by hand")
            expect(runs).to_have_count(1)
            expect(runs).to_contain_text("1953")
            page.get_by_role("combobox", name="Filter runs").select_option("not answered")
            expect(runs).to_have_count(0)


def test_the_plan_box_says_that_a_question_of_one_step_had_no_plan(page):
    page.locator("#strategy").select_option("single")
    ask(page, "Who directed UHF?")
    expect(answer(page)).to_contain_text("Jay Levey")
    plan = page.get_by_label("Plan", exact=True)
    expect(page.locator("#plan")).to_contain_text("No plan was written: the question took one step")
    expect(page.get_by_role("textbox", name="Plan")).to_have_value("")
    assert plan.get_by_role("button").count() == 0, "nothing can be run"
    expect(page.get_by_role("group", name="Plan graph")).to_have_count(0)


def test_plan_answer_sources_steps_and_the_passage_of_a_step_are_above_the_fold(browser, tmp_path):
    with inspecting([Asked("one", "1").server()], runs_in(tmp_path)) as url:
        for page in opened(browser, url, viewport={"width": 1280, "height": 800}):
            ask(page)
            step = page.locator(".row", has_text="Where was Jay Levey born?").last
            step.click()
            passage = page.locator(".document").first
            expect(passage.locator("p", has_text="Jay Levey was born in Detroit")).to_be_visible()
            graph, plan = page.get_by_role("group", name="Plan graph"), page.get_by_role("textbox", name="Plan")
            sources = page.locator(".sources li")
            expect(sources).to_have_count(2)
            for shown in (plan, answer(page), *sources.all(), page.locator(".row").first, step, graph, passage):
                expect(shown).to_be_in_viewport(ratio=1)


def test_a_question_is_not_squeezed_by_the_choices_beside_it(page):
    page.set_viewport_size({"width": 1280, "height": 800})
    page.get_by_role("textbox", name="Question").fill(QUESTION)
    assert page.locator("#question").bounding_box()["height"] < 60, "it takes more than a line"


def test_a_step_shows_the_plan_s_name_beside_the_number_that_it_takes(page):
    ask(page)
    number = page.locator(".row", has_text="Who directed UHF?").last.locator(".number").inner_text()
    page.locator(".row", has_text="Where was Jay Levey born?").last.click()
    expect(page.locator(".node")).to_contain_text(f"{{director}} from node {number}")


def test_no_step_shows_json(page):
    ask(page)
    for row in page.locator(".row").all():
        row.click()
        expect(page.locator(".node h2")).to_contain_text(row.locator(".number").inner_text())
        said = page.locator(".detail").inner_text()
        assert '{"' not in said and '":' not in said and "[object" not in said, said


def test_people_read_words_in_place_of_a_trace_s_labels_and_how_the_question_was_read(browser, tmp_path):
    likely = {"probabilities": [{"straightforward": 0.9, "single": 0.1}]}
    nodes = [
        Node("1", "route", "Who?", answers=["straightforward"], detail=likely),
        Node("2", "direct", "Who?", status="unanswered", detail={"calls": [{"task": "direct", "count": 1, "ms": 1.0}]}),
        Node("3", "atomic", "Who?", answers=["Ana"], detail={"degraded": True, "respelled": {"wer": ["were"]}}),
    ]
    trace = Trace("Who?", "auto", "straightforward", answer="Ana", answers=["Ana"], nodes=nodes)
    trace.versions = {"revelator": "0"}
    runs = runs_in(tmp_path)
    runs.save(StoredRun(runs.new_id(), "one", trace))
    with inspecting([Asked("one", "0").server()], runs) as url:
        for page in opened(browser, url):
            page.locator(".runs a").first.click()
            expect(page.locator(".head")).to_contain_text("no document says “wer”: read as “were”")
            said = page.locator("body").inner_text()
            for row in page.locator(".row").all():
                row.click()
                said += page.locator(".detail").inner_text()
    assert "without documents" in said and "embedded base" in said and " 3 step" in " ".join(said.split())
    assert not re.search("straightforward|direct|atomic|degraded|version 0", said)


def test_the_export_is_the_trace(page):
    ask(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Export JSON").click()
    trace = json.loads(download.value.path().read_text())
    assert Trace.from_json(trace).answer == "Detroit" and download.value.suggested_filename.startswith("trace-")


def test_the_page_asks_for_a_token_once(browser, tmp_path):
    with inspecting([Asked("one", "1").server()], runs_in(tmp_path), token="secret") as url:
        context = browser.new_context()
        page = context.new_page()
        page.goto(url)
        page.locator("#token-text").fill("secret")
        page.keyboard.press("Enter")
        expect(page.locator(".server")).to_have_count(1)
        page.reload()
        expect(page.locator(".server")).to_have_count(1)
        context.close()


def test_nothing_overflows_and_everything_can_be_read(page):
    """No sideways scrolling, and nothing serious that axe-core finds (WCAG AA): contrast, names, roles, order."""
    ask(page)
    page.get_by_role("textbox", name="Plan").fill("Who directed {a_very_long_placeholder_that_needs_its_room}?")
    expect(page.locator(".fault-whole")).to_be_visible()
    page.locator(".row", has_text="Who directed UHF?").first.click()
    for width, scheme in itertools.product((400, 1400), ("light", "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (width, scheme)
        assert list_violations(page) == [], (width, scheme)


def test_examples_in_empty_fields_are_shown_whole_on_a_phone(page):
    page.set_viewport_size({"width": 390, "height": 844})
    plan, where = page.get_by_role("textbox", name="Plan"), page.get_by_label("Only where")
    assert plan.evaluate("field => field.scrollHeight - field.clientHeight") <= 0
    where.fill(where.get_attribute("placeholder"))
    assert where.evaluate("field => field.scrollWidth - field.clientWidth") <= 0


def test_a_link_to_a_passage_shows_it_as_text_and_one_that_is_gone_says_so(browser, tmp_path):
    indexed = replace(Asked("one", "1").server(), sources=Sources.of_index(Shelved()))
    with inspecting([indexed], runs_in(tmp_path)) as url, closing(browser.new_context()) as context:
        page = context.new_page()
        page.goto(f"{url}/?passage=1")
        expect(page.locator(".place mark")).to_have_text("<b>Levey</b>")
        page.goto(f"{url}/?passage=2")
        expect(page.locator("#run")).to_contain_text("there is no passage '2'")
