"""What a language model that reads passages may also write: a deployment's setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

MergePolicy = Literal["auto", "code", "generator"]
MERGE_POLICIES: tuple[MergePolicy, ...] = get_args(MergePolicy)


@dataclass(frozen=True, slots=True)
class Writing:
    """What a language model may write beyond the reading of passages; the embedded reader writes nothing.

    `merge`: who makes the answer of the answers of parts. `auto`: code where it is sure, else the language model;
    `code`: code alone, which lists what it cannot merge; `generator`: always the language model. The nodes of a tree
    reason in their own way (`tree_answers.reason`). `text`: whether it
    also says the answer in sentences, with citations. `own_knowledge`: whether it answers from what it knows where no
    document supports an answer; the trace marks that, and the question's answer is never more than a part.
    """

    merge: MergePolicy = "auto"
    text: bool = False
    own_knowledge: bool = False
