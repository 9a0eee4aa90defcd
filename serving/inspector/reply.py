"""What a chat shows of a trace, and what of an earlier reply is history.

A reply is Markdown of two parts. The answer comes first: its values, and its text with the numbers of its sources.
What the service says about it (how sure it is, where it stands, how the question was read) follows as a quotation:
its lines begin with `>`, and no line of an answer does. So `read_answer` gives back exactly what was answered, without
a word of the service's own. A reply without an answer is a quotation as a whole.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence

from revelator.answers import (
    CITATION,
    asks_nothing,
    explain_silence,
    find_settled_text,
    find_text,
    find_values,
    found_nothing,
    is_unclear,
    judge_certainty,
    list_doubts,
)
from revelator.errors import ServingError
from revelator.tasks import Step
from revelator.trace import Event, Passage, Trace, join_answers

NO_ANSWER = "I found no answer to this."
PURPOSE = "I answer questions from documents, and name the passages that say it."
NOTHING_FOUND = f"I found nothing about this. {PURPOSE}"
NOTHING_ASKED = f"{PURPOSE} What would you like to know?"
DOUBTS = 3  # that a reply names; a question for many things may have one a thing
QUOTED = 200  # characters of an earlier question or answer that a reply repeats
_QUOTED = re.compile(r"^(\\*)>", re.MULTILINE)  # a line that Markdown takes for a quotation, or one that was escaped
_ESCAPED = re.compile(r"^\\(\\*)>", re.MULTILINE)
_SOURCE = re.compile(r"^> - \[(\d+)\] ", re.MULTILINE)


def write_reply(
    trace: Trace, history: Sequence[Step] = (), find_link: Callable[[Passage], str] = lambda passage: ""
) -> str:
    """The whole reply to a question; `history` is what was asked and answered before it, and `find_link` gives the
    address at which a passage can be read."""
    values = write_values(find_values(trace))
    said = _write_remarks(trace) if values else _write_silence(trace, history)
    cited = trace.list_citations(markdown=True, find_link=find_link) if trace.answer else []
    sources = [f"- {' '.join(source.split())}" for source in cited]
    said += ["\n".join(["Sources:", *sources])] if sources else []
    said += [f"{note[:1].upper()}{note[1:]}" for note in trace.list_notes()]
    quoted = "\n>\n".join("\n".join(f"> {line}" for line in block.splitlines()) for block in said)
    return "\n\n".join(filter(None, [values, _escape(find_text(trace)), quoted]))


class ReplyStream:
    """A reply while its question is still answered: `add` each event, then `finish`. The pieces that they give, one
    after the other, are what `write_reply` writes. `read_trace` gives the trace so far."""

    def __init__(self, read_trace: Callable[[], Trace]) -> None:
        self._read_trace = read_trace
        self._trace: Trace | None = None
        self._sent = ""

    def add(self, event: Event) -> str:
        """What has become certain of the reply."""
        if event.kind != "written":
            return ""
        self._trace = self._trace or self._read_trace()
        self._trace.text = event.changes.get("text", "")
        values, text = write_values(find_values(self._trace)), _escape(find_settled_text(self._trace))
        return self._send("\n\n".join(filter(None, [values, text])))

    def finish(self, reply: str) -> str:
        """The rest of the whole reply. Raises ServingError if it does not go on from what was sent."""
        if not reply.startswith(self._sent):
            raise ServingError("the text was changed after it had begun to be sent", hint="ask again without a stream")
        return self._send(reply)

    def _send(self, written: str) -> str:
        sent, self._sent = self._sent, written
        return written.removeprefix(sent)


def write_values(values: str) -> str:
    """The values as a reply begins with them: one line."""
    return _escape(" ".join(values.split()))


def asked_nothing(content: str) -> bool:
    """Whether a message of an assistant is our reply to one that asked for nothing."""
    return content.strip() == f"> {NOTHING_ASKED}"


def read_answer(content: str) -> str:
    """What a message of an assistant answers: of a reply of ours its values and text, without the numbers of sources;
    the whole of another."""
    numbers = {*_SOURCE.findall(content)}
    answer = "\n".join(line for line in content.split("\n") if not line.startswith(">"))
    values, end, text = answer.partition("\n")
    text = CITATION.sub(lambda mark: "" if mark[1] in numbers else mark[0], text)
    return _ESCAPED.sub(r"\1>", f"{values}{end}{text}").strip()


def _escape(text: str) -> str:
    return _QUOTED.sub(r"\\\1>", text)


def _write_remarks(trace: Trace) -> list[str]:
    """Why the answer is not whole, or not sure."""
    doubts = list_doubts(trace)
    begin = ["This answers only a part of the question."] if judge_certainty(trace) == "partial" else []
    more = [f"And {len(doubts) - DOUBTS} more such gaps."] if len(doubts) > DOUBTS else []
    return begin + doubts[:DOUBTS] + more


def _write_silence(trace: Trace, history: Sequence[Step]) -> list[str]:
    """Why there is no answer; of a follow-up that nobody understood, a question back, in the words of the user."""
    if asks_nothing(trace):
        return [NOTHING_ASKED]
    if is_unclear(trace):
        return [_ask_back(trace.question, history)]
    if found_nothing(trace):
        return [NOTHING_FOUND]
    why = explain_silence(trace)
    return [f"{NO_ANSWER} {why[:1].upper()}{why[1:]}." if why else NO_ANSWER]


def _ask_back(question: str, history: Sequence[Step]) -> str:
    last = history[-1]
    answer = textwrap.shorten(join_answers(last.answers), QUOTED, placeholder=" …")
    before = f" Before it you asked “{textwrap.shorten(last.question, QUOTED, placeholder=' …')}”" + (
        f", and the answer was: {answer}." if answer else "."
    )
    return f"I do not see whom or what “{question}” is about.{before} Please ask it again and name what you mean."
