"""The strategies by which a question can be asked, and the limits of what one question may cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from revelator.errors import InvalidRequest, PlanError
from revelator.plans import Atomic, Dependent, Expression, list_leaves
from revelator.plans.art import Art, number_nodes
from revelator.plans.checking import DIVIDED

Strategy = Literal["auto", "direct", "single", "compound", "compile", "atomic", "logic", "iterate"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)  # "auto" asks the revelator for the route

# limits that a request may also raise
FREE = ("plan_floor", "rewrite_floor", "relevance_threshold", "relevance_floor", "answer_floor")
MAY_BE_0 = ("retries",)
LONGEST_MS = 3_600_000.0  # that a deployment may allow a question
ANSWERS, ANSWER_CHARACTERS = 200, 100_000  # that one reading may give, all of them together
NODE_CHARACTERS = 500_000  # of a tree's node once answers stand in its texts: a graph's whole list has room


@dataclass(frozen=True)
class Limits:
    """The limits of one question. The defaults admit every question of the public multi-hop sets; a request may lower
    those of a deployment."""

    leaves: int = 32
    depth: int = 16  # stages of the longest chain
    fan_out: int = 8  # values that one leaf is asked for
    concurrency: int = 16  # leaves of one question that run at the same time
    retries: int = 1  # of a leaf without an answer, each by sources that it was not put to: F1 +.208, docs/results.md
    steps: int = 6  # rounds of the refine loop
    documents: int = 10  # retrieved for a leaf (HANRAG, section 4)
    kept: int = 5  # of them, read by the generator; three, as in QCompiler's figure 3, find less: docs/results.md
    plan_floor: float = 0.86  # P of a plan's tokens (geometric mean) below which `auto` asks one step: docs/results.md
    rewrite_floor: float = 0.8  # P of a rewritten message's tokens (likewise) below which the reply asks back
    relevance_threshold: float = 0.5  # P(relevant) of the documents that are read where there are any
    relevance_floor: float = 0.01  # below it a document is never read
    answer_floor: float = 0.33  # P(right) below which what is read is no answer; its cost and gain: docs/results.md
    deadline_ms: float = 30_000.0
    question_characters: int = 2_000
    plan_characters: int = 20_000  # of a plan that is given, before it is read
    leaf_characters: int = 8_000  # of a leaf's question, also once answers stand in for its placeholders
    placeholders: int = 64  # of a plan, each name counted once a leaf
    options_bytes: int = 4_000_000  # of a served request's options, an earlier trace among them

    @classmethod
    def of_deployment(cls, wanted: Mapping[str, Any]) -> Limits:
        """Returns the defaults, lowered as `wanted` says; the deadline alone may be raised, for models that take their
        time. Raises InvalidRequest."""
        most = replace(cls(), deadline_ms=LONGEST_MS) if "deadline_ms" in wanted else cls()
        return most.lower(wanted)

    def lower(self, wanted: Mapping[str, Any]) -> Limits:
        """Returns these limits, lowered as `wanted` says. Raises InvalidRequest."""
        names = {f.name for f in fields(self)}
        for name, value in wanted.items():
            if name not in names:
                raise InvalidRequest(f"there is no limit {name!r:.60}", hint=f"limits are {', '.join(sorted(names))}")
            number = isinstance(value, int | float) and not isinstance(value, bool)
            least = -math.inf if name in FREE else 0
            is_off = value == 0 and name in MAY_BE_0
            if not number or not (is_off or least < value < math.inf):
                wanted_is = "0 or a positive number" if name in MAY_BE_0 else "a positive number"
                raise InvalidRequest(f"limit {name} must be {wanted_is}, not {value!r:.60}")
            if type(getattr(self, name)) is int and not isinstance(value, int):
                raise InvalidRequest(f"limit {name} must be a whole number, not {value!r:.60}")
        free = {name: value for name, value in wanted.items() if name in FREE}
        return replace(self, **{name: min(value, getattr(self, name)) for name, value in wanted.items()} | free)

    def check_question(self, question: str) -> None:
        """Raises InvalidRequest if the question is empty or too long."""
        if len(question) > self.question_characters:
            raise InvalidRequest(
                f"the question has {len(question)} characters; "
                f"the limit question_characters is {self.question_characters}",
                hint="what it is about can stand in the documents, and what was said before in the option history",
            )
        if not question.strip():
            raise InvalidRequest("the question is empty")
        try:
            question.encode()
        except UnicodeEncodeError as error:
            message = f"character {error.start + 1} of the question is half a surrogate pair"
            raise InvalidRequest(message, hint="was the text cut inside an emoji? cut it before") from error

    def check_size(self, plan: str | None) -> None:
        """Raises InvalidRequest if a given plan is too long to be parsed."""
        if plan is not None and len(plan) > self.plan_characters:
            raise InvalidRequest(
                f"the plan has {len(plan)} characters; the limit plan_characters is {self.plan_characters}",
                hint=DIVIDED,
            )

    def check_plan(self, expression: Expression) -> None:
        """Raises PlanError that names the limit."""
        asked = list_leaves(expression)
        if len(asked) > self.leaves:
            raise PlanError(f"the plan has {len(asked)} leaves; the limit leaves is {self.leaves}", hint=DIVIDED)
        if (longest := max(len(leaf.text) for leaf in asked)) > self.leaf_characters:
            limit = f"the limit leaf_characters is {self.leaf_characters}"
            raise PlanError(f"a question of the plan has {longest} characters; {limit}")
        if (names := sum(len(leaf.placeholders) for leaf in asked)) > self.placeholders:
            message = f"the plan has {names} placeholders; the limit placeholders is {self.placeholders}"
            raise PlanError(message, hint=DIVIDED)
        if (stages := count_stages(expression)) > self.depth:
            message = f"the plan's longest chain has {stages} stages; the limit depth is {self.depth}"
            raise PlanError(message, hint=DIVIDED)

    def check_tree(self, tree: Art) -> None:
        """Raises PlanError that names the limit."""
        nodes = number_nodes(tree)
        leaves, steps = sum(not node.children for node in nodes), max(len(node.path) for node in nodes)
        if leaves > self.leaves:
            raise PlanError(f"the tree has {leaves} leaves; the limit leaves is {self.leaves}", hint=DIVIDED)
        if steps > self.depth:
            raise PlanError(f"the tree is {steps} steps deep; the limit depth is {self.depth}", hint=DIVIDED)


def count_stages(expression: Expression) -> int:
    """Counts the stages of the longest chain. With leaves of equal time, wall time is proportional to it."""
    if isinstance(expression, Atomic):
        return 1
    if isinstance(expression, Dependent):
        return count_stages(expression.left) + count_stages(expression.right)
    return max(count_stages(item) for item in expression.children)
