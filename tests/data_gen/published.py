"""Invented rows in the published form of each source, and ways to spoil them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

ROWS: dict[str, dict[str, Any]] = {
    "hotpotqa": {
        "_id": "h1",
        "question": "Do Orn and Sedge both lie in Marn?",
        "answer": "yes",
        "type": "comparison",
        "level": "hard",
        "supporting_facts": [["Orn", 1], ["Sedge", 0]],
        "context": [["Orn", ["Orn is a hill.", " It is old."]], ["Sedge", ["A lake."]], ["Marn", ["A county."]]],
    },
    "nq": {"question": "who leads orn", "answer": ["Una"]},
    "triviaqa": {"QuestionId": "t", "Question": "Who leads Orn?", "Answer": {"Value": "Una", "Aliases": ["U"]}},
    "webquestions": {"utterance": "who leads orn", "targetValue": '(list (description "Una"))'},
    "pairs": {"id": "p", "question": "Who leads Orn?", "answer": "Una"},
    "qed": {
        "example_id": 1,
        "title_text": "Orn",
        "question_text": "who leads orn",
        "paragraph_text": "Una leads Orn .",
        "original_nq_answers": [[{"start": 0, "end": 3, "string": "Una"}]],
    },
    "squad": {
        "title": "Orn_Fell",
        "paragraphs": [
            {
                "context": "Una Vard leads Orn Fell.",
                "qas": [
                    {
                        "id": "s1",
                        "question": "Who leads Orn Fell?",
                        "answers": [{"text": "Una Vard", "answer_start": 0}, {"text": "Una", "answer_start": 0}],
                    }
                ],
            },
            {
                "context": "The fell is 90 metres high.",
                "qas": [
                    {"id": "s2", "question": "How high is it?", "answers": [{"text": "90 metres", "answer_start": 12}]}
                ],
            },
        ],
    },
    "qrecc": {
        "Context": ["Who leads Orn Fell?", "Una Vard"],
        "Question": "Since when?",
        "Rewrite": "Since when has Una Vard led Orn Fell?",
        "Answer": "1990",
        "Conversation_no": 7,
        "Turn_no": 2,
    },
    "strategyqa": {
        "qid": "y1",
        "question": "Could Orn Fell have seen the Battle of Marn?",
        "answer": True,
        "facts": ["Orn Fell rose in 1200."],
        "decomposition": ["When did Orn Fell rise?", "When was the Battle of Marn?", "Is #2 after #1?"],
        "evidence": [],
    },
    "break": {
        "question_id": "GEO_dev_1",
        "question_text": "which of the towns of orn have a mill",
        "decomposition": "return orn ;return towns of  #1 ;return #2 that  have a mill by the river",
        "operators": "['select', 'project', 'filter']",
        "split": "dev",
    },
    "qdmr": {
        "question_id": "SPIDER_dev_1",
        "question_text": "which town of orn has the most mills",
        "decomposition": "return orn ;return towns of  #1 ;return mills of #2 ;return number of  #3 for each #2 ;return"
        " #2 where #4 is  highest",
        "operators": "['select', 'project', 'project', 'group', 'superlative']",
        "split": "dev",
    },
    "commonsenseqa": {
        "id": "c1",
        "question": "What holds tea?",
        "answerKey": "A",
        "choices": [{"label": "A", "text": "cup"}, {"label": "B", "text": "sieve"}],
    },
}

ANNOTATED: dict[str, Any] = {
    "id": "w:1",
    "source": "mine",
    "licence": "CC0-1.0",
    "split": "train",
    "question": "Who leads Orn?",
    "route": "single",
    "expression": "Who leads Orn?",
    "steps": [{"question": "Who leads Orn?", "answers": ["Una"], "title": "Orn"}],
    "answers": ["Una"],
    "passages": [{"title": "Orn", "text": "Una leads Orn.", "relevant": True}],
    "entities": ["Orn"],
}

VALUES = st.none() | st.booleans() | st.integers(-9, 9) | st.text(st.characters(), max_size=4)
VALUES |= st.lists(VALUES, max_size=3) | st.dictionaries(st.text(max_size=3), VALUES, max_size=2)


def places(value: object, path: tuple = ()) -> list[tuple]:
    """The way to each value below `value`."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [place for key, item in inner for place in places(item, (*path, key))]


def put(row: dict, place: tuple, value: object) -> dict:
    """The row with another value at one place."""
    changed = json.loads(json.dumps(row))
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return changed
