"""The trace on a terminal."""

from __future__ import annotations

from rich.console import Console

from revelator.trace import Node, Passage, Trace, Usage
from revelator.trace_view import print_trace

ROW = "films/row.pdf#page=3&10-40"


def shown(trace: Trace) -> list[str]:
    console = Console(width=120, record=True, force_terminal=False)
    print_trace(trace, console)
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


def test_the_head_names_route_plan_and_the_question_stands_over_the_tree():
    lines = shown(example())
    assert lines[0] == "route    complex  P = 0.75"
    assert lines[1] == "plan     'A * B {director}?'"  # as a shell takes it
    assert lines[2] == "Where?"


def test_nodes_hang_below_the_node_that_encloses_them_with_answer_and_time():
    text = "\n".join(shown(example()))
    assert "├── ✓ 1 route → complex  0 ms" in text
    assert "└── ✓ 2 * one after the other → Port Velm  30 ms" in text
    assert "    ├── ✓ 3 atomic  Who directed [bold]Lantern Row[/]? → Ines Calloway  12 ms" in text
    assert "    └── ✓ 4 atomic  Where was Ines Calloway born?" in text
    assert "“Ines Calloway made it.”" in text


def test_documents_that_were_read_come_first_and_the_rest_by_relevance():
    titles = [line for line in shown(example()) if "score" in line]
    assert "read Lantern Row  score 2.0, relevant 0.90" in titles[0]
    assert "Third  score 1.0, relevant 0.20" in titles[1] and "read" not in titles[1]
    assert len(titles) == 3


def test_what_went_wrong_is_marked():
    trace = example(outcome="partial", degraded=True, reason="no plan could be run", deadline_exceeded=True)
    trace.nodes[3].status, trace.nodes[3].error = "skipped", "not reached"
    text = "\n".join(shown(trace))
    assert "degraded no plan could be run" in text
    assert "– 4 atomic" in text and "not reached" in text
    assert "answer   Port Velm  (partial)  (time ran out)" in text


def test_a_failed_question_shows_that_it_has_no_answer():
    text = "\n".join(shown(example(outcome="failed", answer="", answers=[])))
    assert "answer   none  (failed)" in text


def test_an_answer_shows_its_passage_and_a_question_without_one_the_reason():
    trace = example(outcome="unanswered", answer="", answers=[], reason="no document is relevant")
    trace.nodes[2].detail["probability"] = 0.934
    trace.nodes[3].status, trace.nodes[3].error = "unanswered", "no document is relevant"
    text = "\n".join(shown(trace))
    assert "in Lantern Row in films/row.pdf, page 3, P = 0.93" in text and "∅ 4 atomic" in text
    assert "answer   none  (unanswered)" in text and "reason   no document is relevant" in text
    [evidence] = trace.list_evidence()
    assert (evidence.answers, evidence.sentence) == (("Ines Calloway",), "Ines Calloway made it.")
    assert (evidence.passage.title, evidence.probability) == ("Lantern Row", 0.934)


def test_an_answer_shows_its_evidence_in_the_documents_own_words_or_as_a_paraphrase_and_what_has_none_shows_none():
    text = "\n".join(shown(example()))
    assert "evidence [1] Lantern Row in films/row.pdf, page 3: “Ines Calloway made it.”" in text
    trace = example()
    trace.nodes[2].sentence = "Calloway was the director."
    text = "\n".join(shown(trace))
    assert "page 3: Calloway was the director." in text and "“" not in text
    assert "evidence" not in "\n".join(shown(example(answer="", answers=[], outcome="unanswered")))


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
