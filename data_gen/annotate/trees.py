"""Gold trees of atomic operators (AtomR, section 3.2), made by rule from a gold plan and what its source tells of it.

A tree is flat: the leaves of the plan are the children of the question, in their order, so that `[i]` is the answer of
leaf i. What is done with these answers is one more child, `[DR]`, with its operation. Under a flat tree every answer
can be named by a decoder (`revelator.plans.decoding`), and a short one costs a small model least.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import dropwhile

from data_gen.annotate.wording import STOP_WORDS
from revelator.plans import Expression, bind, list_leaves
from revelator.plans import Sequence as ListOf
from revelator.plans import substitute as fill
from revelator.plans.art import Art, check, depth, escape, number_nodes, parse, references, render, substitute
from revelator.plans.decoding import DEEPEST
from revelator.plans.operations import EXTREMES
from revelator.plans.operators import Call, Filter, Relate, Search

# A run of capitalised words with small ones between them
NAME = re.compile(r"[^\W\d_a-z][\w'.&-]*(?:(?: (?:of|the|and|de|von|for|in|&))* (?:[^\W_a-z]|\d)[\w'.&-]*)*")
UNWRITABLE = re.compile(r"[\[\]\x00-\x1f\x7f-\x9f\u2028\u2029]")  # what the decoder's grammar bars from texts
NAMEABLE = re.compile(r"\[[1-9]\]")
ENDS = STOP_WORDS | {"many", "much", "'s", "", "also"}  # words at the ends of a text that say nothing of a relation


def build_nodes(expression: Expression, calls: Sequence[Call | None]) -> list[Art]:
    """The leaves of a plan that binds, as nodes; `calls` has the operator of each, None to read it from the words."""
    texts = [
        fill(escape(leaf.text), {name: f"[{producer + 1}]" for name, producer in needs.items()})
        for leaf, needs in zip(list_leaves(expression), bind(expression).sources, strict=True)
    ]
    return [Art(text, call or read_call(text)) for text, call in zip(texts, calls, strict=True)]


def render_tree(question: str, children: Sequence[Art]) -> str:
    """The canonical text of a question over these nodes, a single one being the question itself; "" where a decoder
    could not write it: brackets in a text, an answer after the ninth that is named, or nothing to name."""
    whole = Art(question, children[0].call) if len(children) == 1 else Art(question, children=tuple(children))
    return render(whole) if is_writable(whole) else ""


def is_writable(art: Art) -> bool:
    """Whether a tree checks and lies in the decoder's grammar: a node below the k-th child of the root names `[i]` for
    i < k, up to `[9]`, and texts hold no other brackets."""
    if check(art) or depth(art) > DEEPEST:
        return False
    for at in number_nodes(art):
        before = int(at.path[1]) if at.path else 0
        texts = [NAMEABLE.sub("", text) for _, text in at.node.locate_texts()]
        if any(map(UNWRITABLE.search, texts)) or max(at.needs, default=0) > before:
            return False
    return True


def read_call(text: str) -> Call:
    """The operator that a question in free words calls for: a filter of "Which of [1] …?"; else one step from the
    answer or else the name in it, by the rest of its words; a search where there is no name, or nothing but one."""
    if kept := re.fullmatch(r"Which of (\[\d+\]) (.+)\?", text):
        return Filter((kept[1],), kept[2])
    named = [f"[{number}]" for number in references(text)] or find_names(text)
    if not named:
        return Search(_trim(text) or text)
    head = named[0]
    before, _, after = text.partition(head)
    relation = " ".join(part for part in map(_trim, (before, after)) if part)
    return Relate(head, relation) if relation else Search(head)


def find_names(text: str) -> list[str]:
    """What is written with a capital, longest first; the capital of the sentence is none."""
    found = []
    for match in NAME.finditer(text):
        words = [*dropwhile(lambda word: word.casefold() in STOP_WORDS, match[0].split())]
        if len(words) > (match.start() == 0):
            found.append(" ".join(words).removesuffix("'s").rstrip(".,'"))
    return sorted(dict.fromkeys(found), key=lambda name: -len(name))


def _trim(text: str) -> str:
    """Without the words at both ends that only ask."""
    words = [word.strip('?!,;:"') for word in text.removeprefix("'s ").split()]
    said = [place for place, word in enumerate(words) if word.rstrip(".").casefold() not in ENDS]
    return " ".join(words[said[0] : said[-1] + 1]) if said else ""


# ---- what is drawn from earlier answers


def compare_answers(ending: str, expression: Expression, children: Sequence[Art]) -> Art | None:
    """The `[DR]` node of a comparison that ends so (`data_gen.questions.ENDINGS`): the answers of each branch beside
    what they are about. None for an ending that no single node says."""
    name, _, of = ending.partition("_")
    if not isinstance(expression, ListOf) or of not in ("", "source"):
        return None
    first, about = 0, dict[str, int]()
    for branch in expression.items:
        end = first + len(list_leaves(branch))
        heads = [child.call.head for child in (children[first], children[end - 1]) if isinstance(child.call, Relate)]
        about[heads[0 if of else -1] if heads else ""] = first = end
    if len(about) != len(expression.items) or "" in about:
        return None
    if name == "equal":
        return ask_same(*about.values())
    return ask_which(name, {thing: f"[{number}]" for thing, number in about.items()}) if name in EXTREMES else None


def ask_same(*numbers: int) -> Art:
    return Art(f"Are these the same: {', '.join(f'[{number}]' for number in numbers)}?", operation="equal")


def ask_which(operation: str, answers: dict[str, str]) -> Art:
    """`answers`: what is known of each thing that is compared, by its name."""
    *before, last = (f"{name} ({known})" for name, known in answers.items())
    return Art(
        f"Which has the {'least' if operation == 'argmin' else 'greatest'} value, {', '.join(before)} or {last}?",
        operation=operation,
    )


def ask_how_many(number: int) -> Art:
    return Art(f"How many are in [{number}]?", operation="count")


# ---- the same tree about other things


def rewrite_tree(art: Art, rewrite: Callable[[str], str]) -> Art:
    """The tree with every text rewritten."""
    call = art.call and art.call.rewrite(rewrite)
    below = tuple(rewrite_tree(child, rewrite) for child in art.children)
    return Art(rewrite(art.question), call, below, art.operation)


def cut_step_tree(text: str, index: int, answers: Sequence[str], question: str) -> str:
    """The tree of step `index` (from 0) asked on its own as `question`, from the tree of the whole and the answers of
    all steps; "" where the whole has none, or where steps and leaves do not pair up."""
    whole = parse(text) if text else None
    if whole is None or sum(not child.is_direct for child in whole.children) != len(answers):
        return ""
    known = {number: (answer,) for number, answer in enumerate(answers, start=1)}
    node = rewrite_tree(whole.children[index], lambda written: substitute(written, known))
    return render_tree(question, [node]) if node.call else ""
