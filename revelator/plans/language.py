"""The three languages of plans as values of one class: whoever reads, writes, decodes or compares plans takes these.

A further language is a module with these functions, a value here and a task that translates into it; it is run by a
strategy of the executor, scored by a measure, and kept in a field of the annotated question.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from revelator.errors import ExpressionError
from revelator.plans import art, bnf, checking, drawing, logic, operators, steps
from revelator.plans.decoding import make_art_grammar, make_json_grammar, make_logic_grammar, make_plan_grammar
from revelator.plans.faults import Diagnostic
from revelator.plans.grammar import Grammar, read_grammar_file
from revelator.plans.names import find_words

LanguageName = Literal["bnf", "logic", "art"]
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class PlanLanguage:
    """What anybody needs to know of a language of plans. `Any` stands for its own type of plan.

    `parse` raises ExpressionError, and `parse(render(plan)) == plan`; `spell` is the text that a model learns to write,
    which `parse` reads too. `check` says what keeps a plan from being executed, with its place in the text that
    was parsed.
    """

    name: LanguageName
    strategy: str  # of `revelator.limits`, by which a question is answered with its plans
    file: str  # of this package, which defines the language to a decoder
    parse: Callable[[str], Any]
    render: Callable[[Any], str]
    check: Callable[[Any], tuple[Diagnostic, ...]]
    shape: Callable[[Any], str]  # of a plan that checks: equal whatever its words, and the order of what has none
    fallback: Callable[[str], Any]  # the plan that asks a question as it stands, where no better one was written
    leaf_text: Callable[[Any], str]  # what its parts ask for: no placeholders, and not the question as a whole
    count_leaves: Callable[[Any], int]
    grammar: Callable[[], Grammar]  # what a decoder is held to
    token_limit: int  # that a plan takes, decoded token by token
    beam_token_limit: int  # that each beam of a search may take: one that rambles costs all rows of its batch
    spell: Callable[[Any], str]
    refuse: Callable[[Any], tuple[Diagnostic, ...]] = lambda plan: ()  # of a plan that checks, when a caller gives it
    advise: Callable[[Any], tuple[Diagnostic, ...]] = lambda plan: ()  # what a plan that can be run leaves open
    letters: Callable[[Any], str | None] = lambda plan: None  # the shape as people spell it, where they do
    adapt_to_question: Callable[[Any, str], Any] = lambda plan, question: plan  # what is run of a plan of the model's
    json_schema: Callable[[], dict[str, Any]] | None = None  # of the JSON in which a model in a chat writes it, if any
    chat_grammar: Callable[[], Grammar] | None = None  # what such a model is held to, where that is not `grammar`

    @property
    def definition_hash(self) -> str:
        """sha256 of the file that defines the language, comments aside."""
        lines = [line for line in read_grammar_file(self.file).splitlines() if not line.startswith("//")]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def words(self, plan: Any) -> list[str]:
        """The words that its parts ask with, names as they stand."""
        return find_words(self.leaf_text(plan))

    def find_refusals(self, plan: Any) -> tuple[Diagnostic, ...]:
        """What keeps a plan that checks from being run when a caller gives it: what `refuse` finds, and half a
        surrogate pair, which no model or index can be asked with."""
        if _SURROGATE.search(self.render(plan)):
            hint = r"write the whole character, or both halves: \ud83d\ude00"
            return (Diagnostic("surrogate", "half a surrogate pair is no character", 0, 1, hint),)
        return self.refuse(plan)

    def diagnose(self, text: str) -> dict[str, Any]:
        """Parses and checks a text, and returns plain values: `valid` (a caller's plan would be run), its `canonical`
        text, `letters` and number of `leaves`, and the `diagnostics` with offsets in it; of a valid one `advice` of
        the same form.
        """
        advice: tuple[Diagnostic, ...] = ()
        try:
            plan = self.parse(text)
        except ExpressionError as error:
            diagnostics = [Diagnostic.of_error(error)]
            canonical = letters = None
            leaves = 0
        else:
            diagnostics = list(self.check(plan) or self.find_refusals(plan))
            advice = () if diagnostics else self.advise(plan)
            canonical, letters, leaves = self.render(plan), self.letters(plan), self.count_leaves(plan)
            if _SURROGATE.search(canonical):
                canonical = None  # no reply can hold it
        return {
            "expression": text,
            "valid": not diagnostics,
            "canonical": canonical,
            "letters": letters,
            "leaves": leaves,
            "diagnostics": [vars(diagnostic) for diagnostic in diagnostics],
            "advice": [vars(diagnostic) for diagnostic in advice],
        }


def _leaf_texts(plan: bnf.Expression) -> str:
    return " ".join(bnf.substitute(leaf.text, dict.fromkeys(leaf.placeholders, "")) for leaf in bnf.list_leaves(plan))


def _term_texts(query: logic.Query) -> str:
    return " ".join(logic.list_terms(query))


def _node_texts(tree: art.Art) -> str:
    root, *below = [each.node for each in art.number_nodes(tree)]
    calls = [text for node in (root, *below) if node.call for text in node.call.texts]
    return " ".join([*calls, *(node.question for node in below)])


def _ask_whole(question: str) -> bnf.Atomic:
    return bnf.Atomic(bnf.unbrace_placeholders(" ".join(question.split())))


def _keep_words(plan: bnf.Expression, question: str) -> bnf.Expression:
    """The plan, or where it is one step, the question: to ask it in other words can only lose something."""
    return _ask_whole(question) if isinstance(plan, bnf.Atomic) and not plan.has_placeholders else plan


def _ask_about(tree: art.Art, question: str) -> art.Art:
    """The tree about the question as it was asked."""
    return replace(tree, question=art.escape(question))


def _search_for(question: str) -> art.Art:
    return art.Art(art.escape(question), operators.Search(art.escape(question)))


BNF = PlanLanguage(
    name="bnf",
    strategy="compile",
    file="bnf.lark",
    parse=lambda text: steps.read_steps(text) or bnf.parse(text),
    render=bnf.render,
    check=checking.check,
    shape=drawing.make_letters_key,
    fallback=_ask_whole,
    leaf_text=_leaf_texts,
    count_leaves=lambda plan: len(bnf.list_leaves(plan)),
    grammar=make_plan_grammar,
    token_limit=256,
    beam_token_limit=128,  # the longest gold plan of MuSiQue has 80
    spell=bnf.render,
    refuse=checking.find_misspelled_leaves,
    advise=checking.advise,
    letters=drawing.to_letters,
    json_schema=steps.schema,
    chat_grammar=lambda: make_json_grammar(steps.schema()),
    adapt_to_question=_keep_words,
)
LOGIC = PlanLanguage(
    name="logic",
    strategy="logic",
    file="logic.lark",
    parse=logic.parse,
    render=logic.render,
    check=logic.check,
    shape=logic.make_shape_key,
    fallback=logic.Term,
    leaf_text=_term_texts,
    count_leaves=lambda query: len(logic.list_literals(query)),
    grammar=make_logic_grammar,
    token_limit=256,
    beam_token_limit=128,
    spell=logic.render_spaced,
)
ART = PlanLanguage(
    name="art",
    strategy="atomic",
    file="art.schema.json",
    parse=art.parse,
    render=art.render,
    check=art.check,
    shape=art.make_structure_key,
    fallback=_search_for,
    leaf_text=_node_texts,
    count_leaves=lambda tree: sum(not node.children for node in art.number_nodes(tree)),
    grammar=make_art_grammar,
    token_limit=448,  # of 5,767 gold trees of MuSiQue and 2WikiMultiHopQA the longest has 383
    beam_token_limit=448,
    spell=art.render,
    adapt_to_question=_ask_about,
    json_schema=art.schema,
)

LANGUAGES: dict[str, PlanLanguage] = {language.name: language for language in (BNF, LOGIC, ART)}


def find_language(strategy: str) -> PlanLanguage:
    """The language of the plans that a strategy runs: bnf for those that have none of their own."""
    return next((language for language in LANGUAGES.values() if language.strategy == strategy), BNF)


def grammar_hash() -> str:
    """sha256 over the definitions of all languages: equal hashes, equal plans in training and serving."""
    lines = [f"{name} {LANGUAGES[name].definition_hash}\n" for name in sorted(LANGUAGES)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
