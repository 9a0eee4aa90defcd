"""A plan as nested boxes of HTML: side by side for `+`, one below the other for `*`, each leaf with what it found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from revelator.errors import ExpressionError
from revelator.plans import Atomic, Dependent, Expression, bind, check, leaves, parse
from revelator.plans.bnf import children
from revelator.plans.drawing import letter, stages
from revelator.trace import Node, Trace, sort_ids

PASSAGES_SHOWN = 3


def drawn(text: str, trace: Trace | None = None) -> Markup:
    """The plan in `text`, with answers and titles of `trace` where that has run it; without a plan, the steps that the
    trace took; a text that is no plan as it stands."""
    if not text:
        return _steps(trace)
    try:
        plan = parse(text)
    except ExpressionError as error:
        return Markup('<p class="broken">no plan: {}</p><pre>{}</pre>').format(error.message, text)
    faults = check(plan)
    sources = [{} for _ in leaves(plan)] if faults else bind(plan).sources
    drawing = _node(plan, iter(range(len(sources))), sources, _leaves(trace, len(sources)))
    warning = Markup('<p class="broken">{}</p>').format(faults[0].message) if faults else Markup("")
    return Markup('<div class="plan">{}</div>').format(warning + drawing)


def _node(
    node: Expression, count: Iterator[int], sources: Sequence[Mapping[str, int]], found: Sequence[Node | None]
) -> Markup:
    if isinstance(node, Atomic):
        return _leaf(node, index := next(count), sources[index], found[index])
    if isinstance(node, Dependent):
        below = [_node(stage, count, sources, found) for stage in stages(node)]
        return Markup('<div class="chain">{}</div>').format(Markup('<div class="then">↓</div>').join(below))
    below = [_node(item, count, sources, found) for item in children(node)]
    return Markup('<div class="beside">{}</div>').format(Markup("").join(below))


def _leaf(leaf: Atomic, index: int, sources: Mapping[str, int], found: Node | None) -> Markup:
    origin = [f"{{{name}}} ← {letter(source)}" for name, source in sources.items()]
    parts = [
        Markup('<span class="letter">{}</span> {}').format(letter(index), _marked(leaf)),
        *(Markup('<span class="origin">{}</span>').format(text) for text in origin),
        *([_found(found)] if found else []),
    ]
    return Markup('<div class="leaf">{}</div>').format(Markup(" ").join(parts))


def _marked(leaf: Atomic) -> Markup:
    """The text with its placeholders set off."""
    text, parts = leaf.text, []
    for name in leaf.placeholders:
        before, _, text = text.partition(f"{{{name}}}")
        parts += [Markup("{}").format(before), Markup("<mark>{}</mark>").format(f"{{{name}}}")]
    return Markup("").join([*parts, Markup("{}").format(text)])


def _found(node: Node) -> Markup:
    answers = "; ".join(node.answers) or node.error or "no answer"
    style = "answer" if node.answers else "answer none"
    kept = set(node.detail.get("kept", []))
    ranked = sorted(node.documents, key=lambda passage: passage.id not in kept)[:PASSAGES_SHOWN]
    titles = Markup(", ").join(
        Markup("<b>{}</b>" if passage.id in kept else "{}").format(passage.title) for passage in ranked
    )
    read = Markup('<div class="titles">{}</div>').format(titles) if ranked else Markup("")
    return Markup('<div class="{}">→ {}</div>').format(style, answers) + read


def _leaves(trace: Trace | None, count: int) -> Sequence[Node | None]:
    """The nodes of a trace that ran a plan's leaves, in its order; nothing where their number is another."""
    atomic = {node.id: node for node in trace.nodes if node.kind == "atomic"} if trace else {}
    own = [atomic[id] for id in sort_ids(atomic) if "." not in id]
    return own if len(own) == count else [None] * count


def _steps(trace: Trace | None) -> Markup:
    """What a system without a plan did, one box a search or reading."""
    nodes = [node for node in trace.nodes if node.kind in ("atomic", "direct")] if trace else []
    if not nodes:
        return Markup('<p class="broken">no plan</p>')
    boxes = [
        Markup('<div class="leaf"><span class="letter">{}</span> {} {}</div>').format(
            place, node.asked or node.question or trace.question if trace else "", _found(node)
        )
        for place, node in enumerate(nodes, 1)
    ]
    return Markup('<div class="plan"><div class="chain">{}</div></div>').format(
        Markup('<div class="then">↓</div>').join(boxes)
    )
