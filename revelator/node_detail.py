"""What a node of a trace says beside its answers: how it ended, why it has none, and what only some nodes have."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from pydantic import GetPydanticSchema

Status = Literal["waiting", "running", "ok", "unanswered", "failed", "skipped"]  # the first two only while it runs
Cause = Literal[  # why a node has no answer
    "nothing-found",  # no source found a document
    "not-relevant",  # no document helps
    "not-said",  # who reads, or is asked, gives no answer
    "unlikely",  # what was read says it with too little probability
    "undecided",  # the answers before do not decide an operation
    "no-value-before",  # an answer before is nothing to ask about: yes or no, a negation
    "no-answer-before",  # nothing before has an answer
    "too-long",  # with the answers before it
    "unclear",  # what a message of a conversation refers to
    "not-reached",  # time ran out before it began
    "stopped",  # while it ran
    "fault",  # a model, a source or a reply failed
]
STATUS_OF: dict[Cause, Status] = {
    "no-answer-before": "skipped",
    "too-long": "skipped",
    "not-reached": "skipped",
    "stopped": "failed",
    "fault": "failed",
}  # of the others "unanswered"


class Detail(TypedDict, total=False):
    """What only some nodes have. A trace that is read may hold more: it is checked where it is used."""

    step: int  # its number in the plan
    # where its answer is from
    method: str  # how it was computed
    shared_from: str  # the id of the node of this trace that asked the same
    reused_from: str  # the id of the node of an earlier trace
    cached_from: str  # when an earlier question found it (UTC, ISO 8601)
    fallback: str | dict[str, str | None]  # the `node` that searched with the question itself, and `because` of what
    round: str  # the first of the nodes that a baseline asks side by side
    # what it searched
    call: str  # an operator, as it was called
    key: str  # a digest of what it was called with
    logic: str  # the logical query that found the passages of an index
    sources: list[dict[str, Any]]  # what became of each, where several were asked
    selection: dict[str, Any]  # who chose them
    respelled: dict[str, list[str]]  # words of a question that no document holds, and those that were searched for each
    scored: dict[str, dict[str, int]]  # by index, how many passages a logical query scored `of` all, if not all
    overlap: dict[str, float]  # of each entity of a filter, the share of its words that its passages say
    # what it read
    judge: str  # the language model that judged
    kept: list[str]  # ids of the passages that were read
    relevance: str  # how passages were kept that nobody judged, or that no judgement reaches
    generator: str  # how the reader read
    reader: str  # the language model that read, as its endpoint named it
    document: str  # the id of the passage that holds the answer
    probability: float  # that the passages give it
    likeliest: list[str]  # answers that were too unlikely to be given
    # what the answer is
    verdict: bool  # yes or no, and nothing to ask about
    none: bool  # it is known that there is none
    unsupported: str  # why no passage holds it: it is never more than a part
    truncated: str  # what a limit cut off: the question is answered in part
    without_answer: list[str]  # ids of the nodes inside that have none
    ids: dict[str, dict[str, list[str]]]  # who the answers are: source, name, identifiers
    count: int  # how many a graph has, of which it listed some
    contradicts: dict[str, list[str]]  # the list of a graph that the answers stand against
    unread: str  # why the reader did not read beside a graph's list
    # what the models were asked
    calls: list[dict[str, Any]]  # in order: task or mode, prompts, milliseconds, tokens, passages that were read
    retries: dict[str, int]  # by service
    degraded: bool  # a model's reply could not be used
    probabilities: list[dict[str, float]]  # of labels, a mapping a prompt
    text_probability: float  # of the tokens of what the revelator wrote, their geometric mean
    unsure: str  # why its plan was not run
    abandoned: bool  # a step of a plan that found no answer, before the question was asked as one
    task: str  # that a plan was asked by
    attempts: list[dict[str, object]]  # at a plan
    output: str  # that could not be read
    rewritten: str  # a message of a conversation, as it was read
    asks_nothing: bool  # it asks for no information


# To check forty fields of each node of a trace that somebody sends would cost more than to use them does.
AS_MAPPING = GetPydanticSchema(lambda _, handler: handler(dict[str, Any]))
