"""What the executor calls: four small protocols, the values that cross them, and a deployment's settings of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from revelator.tasks import Step, Task
from revelator.trace import Node, Passage

Decoding = Literal["beams", "likeliest", "any-words", "grammar", "free"]  # how plans are written: docs/plans.md
DECODINGS: tuple[Decoding, ...] = get_args(Decoding)
PlannerPrompt = Literal["chat", "trained"]  # a chat with examples, or the prompt that an adapter was trained with
PLANNER_PROMPTS: tuple[PlannerPrompt, ...] = get_args(PlannerPrompt)
Structure = Literal["auto", "vllm", "schema", "none"]  # what holds an endpoint's replies to their form


@dataclass(frozen=True, slots=True)
class Writing:
    """What a language model may write beyond the reading of passages; the embedded reader writes nothing.

    `text`: whether it also says the answer in sentences, with citations. `own_knowledge`: whether it answers from what
    it knows where no document supports an answer; the trace marks that, and the question's answer is never more than a
    part. `reads_messages`: whether it reads the first message of a conversation, too, so that one that asks for
    nothing, such as a greeting, is not searched.
    """

    text: bool = False
    own_knowledge: bool = False
    reads_messages: bool = False


TEXT = "text"


def name_probabilities(task: Task) -> tuple[str, ...]:
    """What a completion of a task may have probabilities of, in order."""
    return task.labels or (TEXT, *([task.refusal] if task.refusal else []))


@dataclass(frozen=True, slots=True)
class Completion:
    """A revelator's output: `probabilities` by label for a label task (then `text` is the likeliest); of a text, where
    it is known, that of `TEXT`: the geometric mean over its tokens; and of the task's refusal, by its first token.

    `degraded`: the model finished no valid plan within its budget; `text` is the question, a plan of one leaf.
    """

    text: str
    probabilities: dict[str, float] = field(default_factory=dict)
    tokens_in: int = 0
    tokens_out: int = 0
    degraded: bool = False


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """`direct`: from the question alone; `read`: from passages; `merge`: from sub-questions and their answers.

    `rewrite`: the one answer is the question itself, as it can be understood without the conversation before it, whose
    questions and answers are the steps; or the reading says that the message `asks_nothing`.

    `compose`: the answer in sentences, from sub-questions, their answers and the passages that hold them, which the
    text cites by their numbers; `style` says in which language and tone. `write`: `question` is a whole prompt. The
    text of both is sentence and only answer; without a language model there is none.

    `listener`: of `compose`, is told the text as far as it is written, each time that it has grown; never, where it
    comes whole. `operator`: of `read`, the operator that the passages were found for, as a tree spells it. `logprobs`:
    the reading is wanted with the log probabilities of its tokens.
    """

    mode: Literal["direct", "read", "merge", "rewrite", "compose", "write"]
    question: str
    passages: tuple[Passage, ...] = ()
    steps: tuple[Step, ...] = ()
    operator: str = ""
    style: str = ""
    logprobs: bool = False
    listener: Callable[[str], object] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Reading:
    """Spans (several where the question asks for a list), the sentence in which they stand, and how they were found.

    `sentence` has a line for each sentence. `is_verdict`: the answer is yes or no. `asks_nothing`: the message that was
    to be rewritten asks for no information. `is_degraded`: a reply could not be read, or a reader beside it did not
    answer. `document` is the id of the passage
    that holds the spans, "" where the generator does not say; `probability` that the passages answer the question, None
    where it has none; `reason` why there is no answer. `tokens` are those of `revelator.language_model.Reply`, where
    they were wanted and an endpoint gives them; `model` is the name that the endpoint reports.
    """

    sentence: str
    answers: tuple[str, ...]
    tokens_in: int = 0
    tokens_out: int = 0
    method: str = ""
    document: str = ""
    probability: float | None = None
    reason: str = ""
    tokens: tuple[tuple[str, dict[str, float]], ...] = ()
    model: str = ""
    is_verdict: bool = False
    asks_nothing: bool = False
    is_degraded: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Reading:
        value: dict[str, Any] = json.loads(text)
        tokens = tuple((token, likely) for token, likely in value["tokens"])
        return cls(**{**value, "answers": tuple(value["answers"]), "tokens": tokens})


class SearchResult(list[Passage]):
    """The passages of a search, best first. `respelled`: words of the query that no passage holds, with the words that
    were searched for each. `scored`: of a logical query, how many passages were scored, and of how many."""

    def __init__(
        self,
        passages: Iterable[Passage] = (),
        respelled: dict[str, list[str]] | None = None,
        scored: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(passages)
        self.respelled = respelled or {}
        self.scored = scored


class Revelator(Protocol):
    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        """One completion a prompt, in order. `task` is a key of `revelator.tasks.TASKS`."""


GROUP = r"[\w.@:/+-]{1,100}"  # the name of a group of callers


@dataclass(frozen=True, slots=True)
class Scope:
    """Which passages may be found: those of documents that fulfil the filter `where` (`serving.retrieval.filters`), and
    that somebody of the `groups` may read. `groups` are of whoever asks, and never from the question; without any, what
    everybody may read is found. None is whoever owns the files, who may read all."""

    where: str = ""
    groups: frozenset[str] | None = frozenset()


PUBLIC, OWNER = Scope(), Scope(groups=None)


class Retriever(Protocol):
    async def search(self, query: str, k: int, scope: Scope = PUBLIC) -> list[Passage]:
        """The `k` best passages of the scope, best first; `SearchResult` where words were read as others. The query is
        words, or a logical query (`revelator.plans.logic`) with an operator."""


class NoModel:
    """Stands for a model or an index that is never called; calling it is a bug."""

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        raise NotImplementedError(task)

    async def search(self, query: str, k: int, scope: Scope = PUBLIC) -> list[Passage]:
        raise NotImplementedError(query)


@dataclass(frozen=True, slots=True)
class PassagePlace:
    """A passage, and those before and behind it in its document."""

    passage: Passage
    before: Passage | None = None
    after: Passage | None = None


@runtime_checkable
class Shelf(Protocol):
    """A retriever whose passages can be opened by their ids, too: an index."""

    async def open_passage(self, id: str, scope: Scope = PUBLIC) -> PassagePlace | None:
        """None for an id that no passage has that the groups of the scope may read."""

    def describe(self, scope: Scope = PUBLIC) -> dict[str, Any]:
        """What the index holds that they may read, and how it was built, as plain values; `fields` are the kinds of
        values by field. No path of this machine."""


@runtime_checkable
class Dated(Protocol):
    """A retriever or a source that knows whether it still holds what it held."""

    def find_state(self) -> str | None:
        """A text that changes with what is searched; None where that is not known."""


class Judge(Protocol):
    async def judge(self, node: Node, question: str, passages: Sequence[Passage]) -> list[float] | None:
        """P(the passage helps to answer the question) of each passage, in order; None where nobody judged them.

        Calls and their tokens are written into the node, and why the passages stay unjudged.
        """


class Generator(Protocol):
    async def answer(self, request: GenerateRequest) -> Reading:
        """A reading; no answer is `answers == ()`."""
