"""Each switch takes out the one part that it names, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from data_gen.questions import AnnotatedQuestion
from evaluation.harness.ablations import AblatedRevelator, check_ablation, keep_sources
from evaluation.harness.config import AblationConfig, RunConfig
from evaluation.harness.system_needs import check_system, choose_strategy, read_limits
from evaluation.harness.systems import open_system
from revelator.errors import ConfigError
from revelator.limits import Limits
from revelator.trace import Trace
from serving.executor.executor import Executor
from serving.executor.judges import JudgeSetting, open_judge
from serving.knowledge.sources import Sources
from serving.knowledge.text_source import TextSource
from serving.retrieval import Index, LocalRetriever
from serving.retrieval.logical_search import LogicalSettings
from tests.chat_server import running, says, write_reading
from tests.serving.executor.world import Toy

QUESTION = "Where was the writer of Belt born?"


async def loop(toy: Toy, judge: JudgeSetting = "embedded", **switched: Any) -> Trace:
    """The refine loop of three rounds at most."""
    revelator, judge = AblatedRevelator(toy, AblationConfig(**switched)), open_judge(judge, toy)
    executor = Executor(revelator, Sources.of_index(toy), toy, Limits(steps=3), judge=judge)
    return await executor.run(QUESTION, strategy="iterate")


def world(**outputs: Any) -> Toy:
    said = {"refine": ["Who wrote Belt?", "Where was Ana born?", "Where is Lima?"], "end": ["no", "yes"], **outputs}
    return Toy({"Who wrote Belt?": ["Ana"], "Where was Ana born?": ["Lima"], QUESTION: ["Ana"]}, said)


async def test_without_relevance_every_document_is_read_as_it_was_ranked() -> None:
    toy = world()
    toy.relevance = {"text 1 ": 0.1, "text 2 ": 0.2}
    with_it, without = await loop(world()), await loop(toy, judge="none")
    assert {task for task, *_ in toy.calls} == {"refine", "end"}
    leaf = next(node for node in without.nodes if node.kind == "atomic")
    assert leaf.detail["kept"] == [passage.id for passage in leaf.documents[: Limits().kept]]
    assert without.answers == with_it.answers


async def test_without_the_end_judge_the_loop_runs_to_its_limit() -> None:
    toy = world()
    trace = await loop(toy, end=False)
    assert len([node for node in trace.nodes if node.kind == "atomic"]) == 3
    assert "end" not in {task for task, *_ in toy.calls}


async def test_without_refine_the_question_itself_is_searched_with_beside_what_is_known() -> None:
    toy = world(end=["no", "no", "no"])
    await loop(toy, refine=False)
    assert toy.asked == [QUESTION, f"{QUESTION} ({QUESTION} = Ana)"]


@pytest.mark.parametrize("k", [1, 5, 10])
async def test_k_documents_are_read_a_leaf(k: int, index: Path) -> None:
    limits = read_limits(config(index, strategy="single").model_copy(update={"limits": {"kept": k}}))
    toy = Toy({"Who?": ["Ana"]})
    await Executor(toy, Sources.of_index(toy), toy, limits).run("Who?", strategy="single")
    assert len(toy.requests[0].passages) == k


def config(index: Path, strategy: str = "compile", **switched: Any) -> RunConfig:
    benchmark = {"format": "nq", "path": "none"}
    made = {"benchmark": benchmark, "system": {"strategy": strategy}, "index": str(index), "ablation": switched}
    return RunConfig.model_validate(made)


async def test_with_free_decoding_a_model_writes_what_it_likes(base: Path, index: Path) -> None:
    written = []
    for decoding in ("beams", "free"):
        here = config(index).model_copy(update={"adapter": "base", "base": str(base), "decoding": decoding})
        async with open_system(here) as ask:
            trace = await ask("Who directed Lantern Row?")
        written.append(next(node for node in trace.nodes if node.kind == "translate").detail["attempts"][0]["output"])
    assert written[0] != written[1], "an untrained model, held to the grammar and not"


async def test_without_names_of_its_parts_a_comparison_knows_its_value_alone() -> None:
    plan, asked = "When did Ada come? + When did Bo come? => argmin", "Which came first, Ada or Bo?"
    for is_named, answers in ((True, ["Ada"]), (False, [])):
        toy = Toy({"When did Ada come?": ["1950"], "When did Bo come?": ["1960"]})
        executor = Executor(toy, Sources.of_index(toy), toy, names_parts=is_named)
        assert (await executor.run(asked, plan=plan)).answers == answers
    with pytest.raises(ConfigError, match="changes nothing for iterate"):
        check_ablation(AblationConfig(part_names=False), "iterate", served=False)


def test_without_the_route_every_question_is_compiled(index: Path) -> None:
    assert choose_strategy(config(index, "auto")) == "auto"
    assert choose_strategy(config(index, "auto", route=False)) == "compile"


def test_sources_are_left_out_by_name() -> None:
    sources = [TextSource(Toy(), name) for name in ("papers", "news")]
    configured = Sources(sources)
    assert [source.name for source in keep_sources(configured, ["news"]).all] == ["news"]
    with pytest.raises(ConfigError, match="no source graph"):
        keep_sources(configured, ["graph"])


async def test_a_language_model_selects_the_sources_that_its_reply_names(
    base: Path, index: Path, tmp_path: Path
) -> None:
    listed = [f"{{kind: text, name: {name}, index: {index}, about: {name} of films}}" for name in ("papers", "notes")]
    (tmp_path / "sources.yaml").write_text(f"sources: [{', '.join(listed)}]")
    with running() as server:
        chosen = {"sources": str(tmp_path / "sources.yaml"), "generator": {"url": server.url, "model": "m"}}
        here = config(index, "single", select="model").model_copy(update={"adapter": "base", "base": str(base)})
        given = RunConfig.model_validate(here.model_dump() | chosen | {"limits": {"relevance_floor": 0}})
        server.replies = [says("notes"), says(write_reading("Marlow Vint"))]
        check_system(given)
        async with open_system(given) as ask:
            trace = await ask("Who directed Lantern Row?")
    [leaf] = [node for node in trace.nodes if node.kind == "atomic"]
    assert (trace.answers, leaf.detail["selection"]) == (["Marlow Vint"], {"by": "model"})
    assert [report["source"] for report in leaf.detail["sources"]] == ["notes"]
    shown = server.requests[0]["messages"][-1]["content"]
    assert "- papers (text) papers of films\n- notes (text) notes of films" in shown


async def test_operators_are_those_that_were_chosen(index: Path) -> None:
    query, opened = '"film" AND "director"', Index.open(index)
    ways = [{}, {"conjunction": "sum"}, {"conjunction": "min"}, {"negation": "reciprocal"}]
    found = [
        await LocalRetriever(opened, LogicalSettings(**way)).search(query, 6)  # type: ignore[arg-type]
        for way in ways
    ]
    assert len({tuple(passage.score for passage in passages) for passages in found[:3]}) == 3
    assert found[3] == found[0], "nothing is negated in this query"


@pytest.mark.parametrize("name", AblationConfig.model_fields)
def test_a_switch_that_would_change_nothing_is_refused(name: str) -> None:
    value = {"read_as": "runs/auto", "sources": ["text"], "select": "all", "operators": {}}.get(name, False)
    with pytest.raises(ConfigError, match="changes nothing for direct"):
        check_ablation(AblationConfig.model_validate({name: value}), "direct", served=False)


async def test_an_oracle_sends_each_question_its_gold_route() -> None:
    golds = [
        AnnotatedQuestion("1", "s", "", "", QUESTION, "single"),
        AnnotatedQuestion("2", "s", "", "", "Hm?", "complex"),
    ]
    toy = world(translate_bnf="Hm?")
    executor = Executor(AblatedRevelator(toy, AblationConfig(route="oracle"), golds), Sources.of_index(toy), toy)
    assert [(await executor.run(gold.question)).route for gold in golds] == ["single", "complex"]
    assert "route" not in {task for task, *_ in toy.calls}
    for system in ("hanrag", "adaptive-rag"):
        check_ablation(AblationConfig(route="oracle"), system, served=False)
    with pytest.raises(ConfigError, match="changes nothing for compile"):
        check_ablation(AblationConfig(route="oracle"), "compile", served=False)
    with pytest.raises(ConfigError, match="cannot be switched"):
        check_ablation(AblationConfig(route="oracle"), "auto", served=True)
