"""The trace on a terminal."""

from __future__ import annotations

import pytest
from rich.console import Console

from revelator.answers import list_doubts
from revelator.trace import Node, Passage, Trace, Usage
from revelator.trace_view import print_trace

ROW = "films/row.pdf#page=3&10-40"
GREEN, YELLOW = 32, 33  # of a terminal


def shown(trace: Trace, steps: bool = True) -> list[str]:
    console = Console(width=120, record=True, force_terminal=False)
    print_trace(trace, console, steps)
    return console.export_text().splitlines()


def example(**changes: object) -> Trace:
    documents = [
        Passage("1", "Elsewhere", "…", 3.0, 0.1),
        Passage(ROW, "Lantern Row", "In 1987\nInes Calloway  made it.", 2.0, 0.9),
        Passage("3", "Third", "…", 1.0, 0.2),
    ]
    nodes = [
        Node("1", "route", "", answers=["complex"], detail={"probabilities": [{"complex": 0.75}]}),
        Node("2", "dependent", "", answers=["Port Velm"], ended_ms=30),
        Node(
            "3",
            "atomic",
            "Who directed [bold]Lantern Row[/]?",
            parent="2",
            asked="Who directed [bold]Lantern Row[/]?",
            documents=documents,
            answers=["Ines Calloway"],
            sentence="Ines Calloway made it.",
            ended_ms=12,
            detail={"kept": [ROW], "document": ROW},
        ),
        Node("4", "atomic", "Where was {director} born?", parent="2", asked="Where was Ines Calloway born?"),
    ]
    settings = {"route": "complex", "plan": "A * B {director}?", "answer": "Port Velm", "answers": ["Port Velm"]}
    return Trace("Where?", "auto", nodes=nodes, usage=Usage(9, 8, 7, 6, 5), wall_ms=31, **(settings | changes))


def test_the_answer_its_certainty_and_its_sources_come_first_and_the_steps_below_on_request():
    trace = example(text="The director came from Port Velm [1].")
    trace.nodes[2].detail |= {"document": ROW, "probability": 0.934}
    first = [
        "Port Velm",
        "sure     from 1 passage, P = 0.93",
        "text     The director came from Port Velm [1].",
        "sources  [1] Lantern Row in films/row.pdf, page 3: “Ines Calloway made it.”",
    ]
    assert shown(trace, steps=False) == first
    assert shown(trace)[:4] == first and len(shown(trace)) > 10


def test_below_the_answer_stand_route_plan_and_the_question_over_the_tree():
    lines = shown(example())
    below = lines[lines.index("") + 1 :]
    assert below[0] == "route    complex  P = 0.75"
    assert below[1] == "plan     'A * B {director}?'"  # as a shell takes it
    assert below[2] == "Where?"


def test_nodes_hang_below_the_node_that_encloses_them_with_answer_and_time():
    text = "\n".join(shown(example()))
    assert "├── ✓ 1 route → complex  0 ms" in text
    assert "└── ✓ 2 * one after the other → Port Velm  30 ms" in text
    assert "    ├── ✓ 3 step  Who directed [bold]Lantern Row[/]? → Ines Calloway  12 ms" in text
    assert "    └── ✓ 4 step  Where was Ines Calloway born?" in text
    assert "“Ines Calloway made it.”" in text


def test_documents_that_were_read_come_first_and_the_rest_by_relevance():
    titles = [line for line in shown(example()) if "score" in line]
    assert "read Lantern Row  score 2, relevant 0.90" in titles[0]
    assert "Third  score 1, relevant 0.20" in titles[1] and "read" not in titles[1]
    assert len(titles) == 3


@pytest.mark.parametrize("scores", [[31.25, 31.24], [2.0, 1.0], [1 / 61 + 1 / 62, 1 / 61 + 1 / 63], [1 / 109, 1 / 110]])
def test_scores_that_differ_are_shown_as_different_ones_whatever_their_scale(scores: list[float]) -> None:
    trace = example()
    trace.nodes[2].documents = [Passage(str(score), "Row", "…", score) for score in scores]
    said = [float(line.split("score ")[1]) for line in shown(trace) if "score" in line]
    assert said == pytest.approx(scores, rel=1e-3) and said[0] > said[1]


def test_an_answer_that_is_not_whole_says_what_it_lacks():
    trace = example(outcome="partial", degraded=True, reason="no plan could be run", deadline_exceeded=True)
    trace.nodes[3].status, trace.nodes[3].error = "skipped", "not reached"
    text = "\n".join(shown(trace))
    assert text.startswith("Port Velm\npartial  Time ran out")
    assert "instead  no plan could be run" in text
    assert "– 4 step" in text and "not reached" in text


@pytest.mark.parametrize(
    ("outcome", "detail", "code"),
    [
        ("answered", {"probability": 0.9}, GREEN),
        ("answered", {"probability": 0.2}, YELLOW),
        ("partial", {"unsupported": "no passage says it"}, YELLOW),
        ("partial", {"truncated": "of 300 answers the first 200 were taken"}, YELLOW),
    ],
)
def test_an_answer_that_is_in_doubt_has_another_colour_and_says_why(outcome, detail, code):
    trace = example(outcome=outcome, text="")
    trace.nodes[2].detail |= {"document": ROW} | detail
    console = Console(width=120, record=True, force_terminal=True)
    print_trace(trace, console, steps=False)
    styles = console.export_text(styles=True).splitlines()
    assert f"\x1b[1;{code}mPort Velm" in styles[0]
    assert len(list_doubts(trace)) == (code == YELLOW)


def test_a_question_without_an_answer_says_why_in_plain_words():
    trace = example(outcome="unanswered", answer="", answers=[], reason="the limit relevance_floor is 0.01")
    trace.nodes[3] = Node("4", "atomic", "Where?", documents=[Passage("1", "A", "…")], detail={"kept": []})
    trace.nodes[3].status, trace.nodes[3].error = "unanswered", "the limit relevance_floor is 0.01"
    assert shown(trace, steps=False) == ["no answer", "why      no passage that was found is about it"]
    assert "∅ 4 step" in "\n".join(shown(trace))


def test_a_failed_question_shows_that_it_has_no_answer():
    trace = example(outcome="failed", answer="", answers=[])
    trace.nodes[3].status, trace.nodes[3].error = "failed", "Unavailable: down"
    why = "why      “Where was Ines Calloway born?”: a part of the service failed (Unavailable: down)"
    assert shown(trace, steps=False) == ["no answer", why]


def test_each_step_shows_its_passage_and_how_likely_it_holds_the_answer():
    trace = example()
    trace.nodes[2].detail |= {"document": ROW, "probability": 0.934}
    assert "in Lantern Row in films/row.pdf, page 3, P = 0.93" in "\n".join(shown(trace))
    [evidence] = trace.list_evidence()
    assert (evidence.answers, evidence.sentence) == (("Ines Calloway",), "Ines Calloway made it.")
    assert (evidence.passage.title, evidence.probability) == ("Lantern Row", 0.934)


def test_an_answer_shows_its_evidence_in_the_documents_own_words_or_as_a_paraphrase():
    text = "\n".join(shown(example()))
    assert "[1] Lantern Row in films/row.pdf, page 3: “Ines Calloway made it.”" in text
    trace = example()
    trace.nodes[2].sentence = "Calloway was the director."
    text = "\n".join(shown(trace))
    assert "page 3: Calloway was the director." in text and "“" not in text


def test_a_route_and_a_step_are_called_by_words_that_need_no_manual():
    trace = example(route="straightforward")
    trace.nodes[0] = Node(
        "1", "route", "", answers=["straightforward"], detail={"probabilities": [{"straightforward": 1}]}
    )
    trace.nodes[2].kind = "direct"
    text = "\n".join(shown(trace))
    assert text.count("without documents") == 3 and "straightforward" not in text and "direct " not in text
    trace.route, trace.nodes[0].detail = "atomic", {}
    assert "route    tree" in "\n".join(shown(trace))


def test_a_document_cannot_write_to_the_terminal() -> None:
    trace = example(answer="\x1b]0;mine\x07Port Velm")
    trace.nodes[2].documents.append(Passage("9", "\x1b[2JGone\u202e", "…", 9.0, 0.99))
    text = "\n".join(shown(trace))
    assert "·[2JGone·" in text and "·]0;mine·Port Velm" in text
    assert all(character.isprintable() for line in text.splitlines() for character in line)


def test_a_step_says_which_source_it_went_without_and_which_list_its_answer_stands_against():
    trace = example()
    trace.nodes[2].detail |= {
        "sources": [{"source": "papers", "outcome": "passages"}, {"source": "web", "error": "left out after 3 s"}],
        "contradicts": {"films": ["Bo Marsh", "Cy Vane"]},
        "logic": '"a" AND NOT "b"',
    }
    text = "\n".join(shown(trace))
    assert 'found by "a" AND NOT "b"' in text
    assert "without web: left out after 3 s" in text and "without papers" not in text
    assert "films says Bo Marsh; Cy Vane" in text


def test_a_step_that_was_put_to_other_sources_says_so():
    trace = example()
    trace.nodes.append(Node("3.1", "atomic", "Who?", parent="3", detail={"fallback": "put to other sources"}))
    assert any(line.endswith("put to other sources") for line in shown(trace))
