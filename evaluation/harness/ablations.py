"""Systems that differ from those that are served in one part. The executor itself does not change.

Ablations take a part out, where that part is called. Bounds make a part perfect: with the gold plan only retrieval and
reading can fail; with the gold passages of the whole question only the reader can.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from data_gen.questions import AnnotatedQuestion
from evaluation.harness.config import AblationConfig
from revelator.errors import ConfigError
from revelator.limits import Limits
from revelator.tasks import TASKS, QuestionInput
from revelator.trace import Passage, Trace
from serving.executor.evidence import Models
from serving.executor.executor import Executor
from serving.executor.recording import Recorder
from serving.executor.run import QuestionRun
from serving.knowledge.sources import Sources
from serving.protocols import Completion, GenerateRequest, Revelator

AFFECTS = {  # strategies and baselines for which a switch changes anything
    "route": ("auto",),
    "oracle": ("auto", "hanrag", "adaptive-rag"),
    "relevance": ("auto", "single", "compound", "compile", "logic", "iterate", "hanrag"),
    "end": ("auto", "compile", "iterate", "hanrag"),
    "refine": ("auto", "compile", "iterate", "hanrag"),
    "read_as": ("naive",),
    "sources": ("auto", "single", "compound", "compile", "atomic", "iterate"),
    "select": ("auto", "single", "compound", "compile", "atomic", "iterate"),
    "own_words": ("auto", "single", "compound", "compile", "iterate"),
    "conditions": ("auto", "compound", "compile", "atomic"),
    "part_names": ("auto", "compound", "compile"),
    "operators": ("logic", "logical ranking"),
}
SERVED = ("route",)  # what can be switched from outside a running server


def check_ablation(ablation: AblationConfig, strategy: str, *, served: bool) -> None:
    """Raises ConfigError for a switch that changes nothing for this system, or that a running server does not have."""
    for name, value in ablation.list_switches().items():
        where, affected = f"ablation.{name}", AFFECTS["oracle" if value == "oracle" else name]
        if strategy not in affected:
            hint = f"it does for {', '.join(affected)}"
            raise ConfigError(f"this switch changes nothing for {strategy}", where=where, hint=hint)
        if served and (name not in SERVED or value == "oracle"):
            hint = "leave `url` out: in this process every part can be switched"
            raise ConfigError("a running server cannot be switched so from outside", where=where, hint=hint)


class AblatedRevelator:
    """A revelator that answers some tasks with a constant instead of asking the model, or a question's route with the
    gold one (`golds`: the questions that are asked)."""

    def __init__(self, revelator: Revelator, ablation: AblationConfig, golds: Iterable[AnnotatedQuestion] = ()) -> None:
        self.revelator = revelator
        self.routes: dict[str, str] = {}
        if ablation.route == "oracle":
            self.routes = {TASKS["route"].render(QuestionInput(gold.question)): gold.route for gold in golds}
        self.switched_off = frozenset(task for task in ("end", "refine") if getattr(ablation, task) is False)

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        if task == "route" and self.routes:
            return [Completion(self.routes[prompt], {self.routes[prompt]: 1.0}) for prompt in prompts]
        if task not in self.switched_off:
            return await self.revelator.complete(task, prompts, temperature=temperature)
        if task == "refine":
            return [Completion(_append_known_steps(prompt)) for prompt in prompts]
        return [Completion("no", {"yes": 0.0, "no": 1.0}) for _ in prompts]


def _append_known_steps(prompt: str) -> str:
    """Returns the question with the known steps behind it: a new text for as long as the loop learns something."""
    known = prompt.rpartition("\nKnown: ")[2].rpartition("\n")[0]
    question = TASKS["refine"].read_question(prompt)
    return question if known == "nothing" else f"{question} ({known})"


def keep_sources(sources: Sources, names: Sequence[str]) -> Sources:
    """Keeps the named sources. Raises ConfigError for an unknown name."""
    there = {source.name: source for source in sources.all}
    if unknown := [name for name in names if name not in there]:
        message = f"there is no source {', '.join(unknown)}"
        raise ConfigError(message, where="ablation.sources", hint=f"sources are {', '.join(there)}")
    if not names:
        raise ConfigError("no source is left", where="ablation.sources")
    return sources.keep(names)


def list_gold_passages(gold: AnnotatedQuestion) -> tuple[Passage, ...]:
    """The relevant passages of a question whose text is known; by number where its source gives them no ids."""
    known = [(str(place), p) for place, p in enumerate(gold.passages) if p.relevant and p.text]
    return tuple(Passage(p.id or number, p.title, p.text, 1.0) for number, p in known)


def has_gold(bound: str, gold: AnnotatedQuestion) -> bool:
    """Whether what the bound is given is known of a question: its plan, or its passages."""
    return bool(gold.expression if bound == "gold-plan" else list_gold_passages(gold))


async def answer_by_gold_plan(executor: Executor, gold: AnnotatedQuestion) -> Trace:
    return await executor.run(gold.question, plan=gold.expression)


async def answer_from_gold_passages(models: Models, sources: Sources, limits: Limits, gold: AnnotatedQuestion) -> Trace:
    passages = list_gold_passages(gold)
    run = QuestionRun(gold.question, models, sources, limits, Recorder(gold.question, "single"))
    node = run.open("atomic")
    node.asked, node.documents = gold.question, list(passages)
    with run.recorder.record(node):
        await models.generate(node, GenerateRequest("read", gold.question, passages=passages))
    run.answer(node.answers)
    return run.recorder.finish()
