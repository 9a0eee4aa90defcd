"""Triton model `executor` that answers at once, always with the same trace: two leaves with ten documents each."""

import json

from revelator.trace import Node, Passage, Trace, Usage
from serving.triton.inside.backend import response, strings

QUESTION, PLAN = "Who founded the company that distributed UHF?", "Who distributed UHF? * Who founded {distributor}?"
DOCUMENTS = [
    Passage(str(n), f"Title {n}", "A passage of about a hundred words. " * 14, 9.5 - n, 0.9) for n in range(10)
]


def node(id, kind, answer, parent=None):
    found = Node(id, kind, QUESTION, parent, QUESTION, sentence=f"It is {answer}.", answers=[answer])
    found.documents = DOCUMENTS if kind == "atomic" else []
    found.usage = Usage(820, 8, 6, 1, 1)
    return found


class TritonPythonModel:
    def initialize(self, args):
        nodes = [node("1", "route", "complex"), node("2", "translate", PLAN), node("3", "dependent", "Arthur Krim")]
        nodes += [node("4", "atomic", "Orion Pictures", "3"), node("5", "atomic", "Arthur Krim", "3")]
        trace = Trace(QUESTION, "auto", plan=PLAN, answer="Arthur Krim", answers=["Arthur Krim"], nodes=nodes)
        text = json.dumps(trace.to_json(), ensure_ascii=False)
        self.answered = {"answer": strings(trace.answer), "trace": strings(text)}

    def execute(self, requests):
        return [response(**self.answered) for _ in requests]
