"""Generation held to a grammar: whatever the logits say, what is written parses and checks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from revelator.errors import ConfigError
from revelator.limits import Limits
from revelator.plans import Atomic, check, parse, render
from revelator.plans.decoding import make_plan_grammar
from revelator.plans.grammar import Grammar
from revelator.plans.language import LANGUAGES
from revelator.tasks import TASKS, QuestionInput
from revelator.trace import Passage
from serving.executor.executor import Executor
from serving.knowledge.sources import Sources
from serving.models.decoding import Constraint, Vocabulary, add_noise, pick_best_tokens
from serving.models.engine import Engine
from serving.models.local import LocalRevelator, complete
from serving.protocols import GenerateRequest, Reading
from tests.causal import TINY
from tests.serving.toy_model import write_base

SIGNS = {  # what a language is made of, and what ends its texts
    "bnf": ([*'+*(){}"\\', " ", "+", " +", " *", " (", " {", "}", ")", ' "', "x", "é"], ["x", '"', "}", " {x}", ")"]),
    "logic": ([*'"()_\\', " AND", " OR", " (", "NOT", "NOT (", ' "'], ["x", '"', ")"]),
    "art": ([*'"[]{}123\\', " ", '"children": [', '"direct"', "[1]", "[2]", "é"], ["x", '"', '"}', "}", "]", "true"]),
}
held = settings(suppress_health_check=list(HealthCheck), max_examples=10, derandomize=True)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    return Vocabulary(tokenizer, len(tokenizer))


def write(vocabulary: Vocabulary, grammar: Grammar, seed: int, signs: Sequence[str], ends: Sequence[str]) -> str | None:
    """What a model with random logits writes, as `generate` would call the constraint: it prefers the signs, after a
    while the ends, and then ends as soon as the grammar lets it. None where that is never."""
    draw = torch.Generator().manual_seed(seed)
    constraint, matcher = Constraint(vocabulary, [grammar]), vocabulary.make_matcher(grammar)
    early, late = ([t for sign in some for t in vocabulary.tokens.tokenize_str(sign)] for some in (signs, ends))
    ids = torch.zeros((1, 1), dtype=torch.long)
    for number in range(160):
        is_late = number >= 8 * (seed % 5)
        logits = torch.randn((1, vocabulary.size), generator=draw) * 2
        logits[0, late if is_late else early] += 9.0
        logits[0, vocabulary.end] = -9.0
        token = constraint(ids, logits).argmax(-1, keepdim=True)
        if token.item() == vocabulary.end or (is_late and matcher.is_accepting()):
            return vocabulary.tokens.decode_str(ids[0, 1:].tolist())
        matcher.consume_token(token.item())
        ids = torch.cat([ids, token], dim=1)
    return None


@pytest.mark.parametrize("name", SIGNS)
def test_what_any_logits_write_to_its_end_parses_and_checks(vocabulary: Vocabulary, name: str) -> None:
    """Whether all or no documents match a logical query, no grammar can tell."""
    language = LANGUAGES[name]
    texts = [write(vocabulary, language.grammar(), seed, *SIGNS[name]) for seed in range(15)]
    ended = [text for text in texts if text is not None]
    assert len(ended) > 5
    for text in ended:
        assert text[0] == " "
        assert {fault.code for fault in language.check(language.parse(text))} <= {"contradiction", "tautology"}


@held
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 4.0, 8.0]))
def test_the_best_token_that_fits_is_taken(vocabulary: Vocabulary, seed: int, bias: float) -> None:
    """Against the whole mask of a matcher of its own."""
    draw = torch.Generator().manual_seed(seed)
    constraint, matcher = Constraint(vocabulary, [make_plan_grammar()]), vocabulary.make_matcher(make_plan_grammar())
    tokens = [token for piece in SIGNS["bnf"][0] for token in vocabulary.tokens.tokenize_str(piece)]
    ids = torch.zeros((1, 1), dtype=torch.long)
    for _ in range(96):
        logits = torch.randn((1, vocabulary.size), generator=draw)
        logits[0, tokens] += bias
        logits[0, vocabulary.end] = -9.0
        token = pick_best_tokens(constraint(ids, logits))
        allowed = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        places = np.flatnonzero(allowed[: vocabulary.size])
        assert token.item() == places[logits[0].numpy()[places].argmax()]
        if token == vocabulary.end:
            break
        matcher.consume_token(token.item())
        ids = token[:, None]


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_a_draw_is_one_of_the_softmax_over_what_the_grammar_allows(vocabulary: Vocabulary, temperature: float) -> None:
    """Inside a placeholder two tokens fit; a quote, which the model likes nearly as much, does not."""
    torch.manual_seed(0)
    rows = 4000
    fitting = [vocabulary.tokens.tokenize_str(piece)[0] for piece in ("x", "y")]
    other = vocabulary.tokens.tokenize_str('"')[0]
    logits = torch.full((1, vocabulary.size), -20.0)
    logits[0, fitting[0]], logits[0, fitting[1]], logits[0, other] = 2.0, 1.5, 1.9
    constraint = Constraint(vocabulary, [make_plan_grammar()] * rows, temperature)
    for matcher in constraint.matchers:
        assert matcher and matcher.consume_tokens(vocabulary.tokens.tokenize_str(" Who wrote it? * Who is {"))
    chosen = pick_best_tokens(constraint(torch.zeros((rows, 1), dtype=torch.long), logits.expand(rows, -1)))
    share = (logits[0, fitting] / temperature).softmax(0)[0]
    assert set(chosen.tolist()) == set(fitting)
    assert abs((chosen == fitting[0]).float().mean() - share) < 0.035  # four standard deviations


def test_a_model_that_would_end_too_early_ends(vocabulary: Vocabulary) -> None:
    logits = torch.zeros((1, vocabulary.size))
    logits[0, vocabulary.end] = 9.0
    constraint = Constraint(vocabulary, [make_plan_grammar()])
    assert pick_best_tokens(constraint(torch.zeros((1, 1), dtype=torch.long), logits)).item() == vocabulary.end


def test_a_free_draw_is_one_of_the_softmax() -> None:
    torch.manual_seed(0)
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 3.0])
    for temperature in (0.5, 1.0, 2.0):
        shares = (
            torch.bincount(pick_best_tokens(add_noise(logits.expand(20_000, -1), temperature)), minlength=5) / 20_000
        )
        assert torch.allclose(shares, (logits / temperature).softmax(0), atol=0.015)  # four standard deviations
    assert add_noise(logits, 0) is logits


def test_a_grammar_that_cannot_be_used_is_refused_in_one_line(vocabulary: Vocabulary) -> None:
    with pytest.raises(ConfigError, match=r"no grammar to decode by: .*foo"):
        vocabulary.make_matcher(Grammar((("output", '"a" foo'),)))


QUESTIONS = [
    "",
    "Who founded the company that distributed UHF?",
    '+ * ( ) { } "' * 9,
    '"(({x} * + ) é 电影 \\',
    "who is the {director} of (the film * 1997)?" * 3,
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return Engine(write_base(tmp_path_factory.mktemp("base")), threads=1)


@pytest.fixture(scope="module")
def tiny() -> Engine:
    return Engine(TINY, threads=1)


@pytest.mark.parametrize("temperature", [0.0, 3.0])
def test_a_served_plan_is_valid_or_the_question_itself_and_marked(
    engine: Engine, tiny: Engine, temperature: float
) -> None:
    """Random weights never end a text; the small model ends most, and fewer the hotter it is."""
    asked = QUESTIONS * 5
    prompts = [TASKS["translate_bnf"].render(QuestionInput(question)) for question in asked]
    written = [complete(model, "translate_bnf", prompts, temperature, 48, "grammar") for model in (engine, tiny)]
    for question, completion in [pair for some in written for pair in zip(asked, some, strict=True)]:
        assert check(parse(completion.text)) == ()
        assert not completion.degraded or completion.text == TASKS["translate_bnf"].write_fallback(
            TASKS["translate_bnf"].render(QuestionInput(question))
        )
    ended, cut_off = ([c.degraded for c in some].count(False) for some in written[::-1])
    assert ended > 0 == cut_off or temperature > 0


@pytest.mark.parametrize(
    ("question", "leaf"),
    [
        ("Who is {x * (of the", "Who is {x * (of the"),
        ("", ""),
        ("who the film " * 800, ("who the film " * 800).strip()),
        ("Who wrote {x} in {{the year}}?", "Who wrote x in the year?"),
        ("Who wrote {x}? " * 800, ("Who wrote x? " * 800).strip()),
    ],
)
def test_a_plan_without_room_is_the_question_itself_and_degraded(tiny: Engine, question: str, leaf: str) -> None:
    """A long question leaves no positions, and none leaves any within three tokens. Placeholders lose their braces."""
    prompt = TASKS["translate_bnf"].render(QuestionInput(question))
    fine = TASKS["translate_bnf"].render(QuestionInput("Who is it?"))
    completion, beside = complete(tiny, "translate_bnf", [prompt, fine], max_new_tokens=3 if len(question) < 99 else 40)
    assert completion.degraded
    assert completion.text == render(Atomic(leaf))
    assert check(parse(completion.text)) == ()
    assert beside.degraded == (len(question) < 99)


def test_free_decoding_writes_what_the_model_wants(engine: Engine) -> None:
    prompts = [TASKS["translate_bnf"].render(QuestionInput(question)) for question in QUESTIONS]
    free = complete(engine, "translate_bnf", prompts, max_new_tokens=12, decoding="free")
    assert [c.text for c in free] == [row.text for row in engine.generate(prompts, max_new_tokens=12)]


def test_a_trained_plan_is_one_that_the_decoder_can_write(vocabulary: Vocabulary) -> None:
    for text in (
        "Who is the performer of Hello Love? * What city did {performer} live in? * Which state borders {city}?",
        "(Which continent is Aruba in? + Which country is Prazeres in?) * Which holding in {continent} had {country}?",
        'Who sang "You + (Me" in 2015? * (When was {singer}\'s debut? + Is {singer} in *NSYNC (band)?)',
        '"1 + 1?" * Is {sum} even? + من أخرج الفيلم؟ * أين ولد {المخرج}؟',
    ):
        assert check(parse(text)) == ()
        matcher = vocabulary.make_matcher(make_plan_grammar())
        assert matcher.consume_tokens(vocabulary.tokens.tokenize_str(f" {text}")) and matcher.is_accepting()
    assert Path(TINY).is_dir()


class _Empty:
    """A corpus without documents, and a generator that knows nothing."""

    async def search(self, query: str, k: int, scope: object = None) -> list[Passage]:
        return []

    async def answer(self, request: GenerateRequest) -> Reading:
        return Reading("", ())


async def test_a_plan_that_was_not_finished_is_marked_in_the_trace(engine: Engine) -> None:
    revelator = LocalRevelator(engine)
    question = "电影 " * 500  # within the executor's limit of 2,000 characters, beyond the model's positions
    trace = await Executor(revelator, Sources.of_index(_Empty()), _Empty(), Limits()).run(question, strategy="compile")
    revelator.close()
    assert trace.degraded and "finished no valid plan" in (trace.reason or "")
    assert trace.nodes[0].kind == "translate" and trace.nodes[0].detail["degraded"]
    assert trace.plan == render(Atomic(question.strip()))
