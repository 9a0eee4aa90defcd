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
from revelator.plans import Atomic, art, check, logic, parse, render
from revelator.plans.decoding import make_logic_grammar, make_plan_grammar
from revelator.plans.grammar import Grammar
from revelator.plans.json_decoding import make_art_grammar, make_json_grammar
from revelator.plans.names import read_function_words
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

PIECES = [*'+*(){}"\\', " ", " +", " *", " (", " {", "}", ")", ' "', "x", "é"]
LOGIC_SIGNS = [*'"()_\\', " AND", " OR", " (", "NOT", "NOT (", ' "']
TREE_SIGNS = [*'"[]{}123\\', " ", '"children": [', '"direct"', "[1]", "[2]", "é"]
seeds = st.integers(0, 2**32 - 1)
held = settings(suppress_health_check=list(HealthCheck), max_examples=30, derandomize=True)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    return Vocabulary(tokenizer, len(tokenizer))


def write(
    vocabulary: Vocabulary,
    grammar: Grammar,
    room: int,
    seed: int,
    bias: float,
    pieces: Sequence[str] = PIECES,
) -> tuple[str, bool]:
    """What a model with random logits writes, as `generate` would call the constraint; `bias` is for pieces."""
    draw = torch.Generator().manual_seed(seed)
    constraint = Constraint(vocabulary, [grammar], room)
    wanted = [token for piece in pieces for token in vocabulary.tokens.tokenize_str(piece)]
    ids = torch.zeros((1, 1), dtype=torch.long)
    for _ in range(room):
        logits = torch.randn((1, vocabulary.size), generator=draw) * 2
        logits[0, wanted] += bias
        token = constraint(ids, logits).argmax(-1, keepdim=True)
        if token.item() == vocabulary.end:
            break
        ids = torch.cat([ids, token], dim=1)
    return vocabulary.tokens.decode_str(ids[0, 1:].tolist()), constraint.degraded[0]


@held
@given(seeds, st.sampled_from([20, 40, 96, 256]), st.sampled_from([0.0, 4.0, 8.0]))
def test_any_logits_write_a_plan_that_parses_and_checks(
    vocabulary: Vocabulary, seed: int, room: int, bias: float
) -> None:
    text, degraded = write(vocabulary, make_plan_grammar(), room, seed, bias)
    assert not degraded
    assert text[0] == " " and check(parse(text[1:])) == ()


@held
@given(seeds, st.sampled_from([0.0, 4.0, 8.0]))
def test_the_best_token_that_fits_is_taken(vocabulary: Vocabulary, seed: int, bias: float) -> None:
    """Against the whole mask of a matcher of its own, until the output has to be closed."""
    draw = torch.Generator().manual_seed(seed)
    constraint, matcher = (
        Constraint(vocabulary, [make_plan_grammar()], 96),
        vocabulary.make_matcher(make_plan_grammar()),
    )
    tokens = [token for piece in PIECES for token in vocabulary.tokens.tokenize_str(piece)]
    ids = torch.zeros((1, 1), dtype=torch.long)
    while True:
        logits = torch.randn((1, vocabulary.size), generator=draw)
        logits[0, tokens] += bias
        token = pick_best_tokens(constraint(ids, logits))
        if constraint.rows[0].forced is not None or token == vocabulary.end:
            break
        allowed = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        places = np.flatnonzero(allowed[: vocabulary.size])
        assert token.item() == places[logits[0].numpy()[places].argmax()]
        matcher.consume_token(token.item())
        ids = token[:, None]


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_a_draw_is_one_of_the_softmax_over_what_the_grammar_allows(vocabulary: Vocabulary, temperature: float) -> None:
    """Inside a placeholder two tokens fit; the end, which the model likes nearly as much, does not, nor a quote."""
    torch.manual_seed(0)
    rows = 4000
    fitting = [vocabulary.tokens.tokenize_str(piece)[0] for piece in ("x", "y")]
    other = [vocabulary.end, vocabulary.tokens.tokenize_str('"')[0]]
    logits = torch.full((1, vocabulary.size), -20.0)
    logits[0, fitting[0]], logits[0, fitting[1]], logits[0, other] = 2.0, 1.5, 1.9
    constraint = Constraint(vocabulary, [make_plan_grammar()] * rows, 96, temperature)
    for row in constraint.rows:
        for token in vocabulary.tokens.tokenize_str(" Who wrote it? * Who is {"):
            row.take(token)
    chosen = pick_best_tokens(constraint(torch.zeros((rows, 1), dtype=torch.long), logits.expand(rows, -1)))
    share = (logits[0, fitting] / temperature).softmax(0)[0]
    assert all(row.forced is None for row in constraint.rows)
    assert set(chosen.tolist()) == set(fitting)
    assert abs((chosen == fitting[0]).float().mean() - share) < 0.035  # four standard deviations


def test_a_free_draw_is_one_of_the_softmax() -> None:
    torch.manual_seed(0)
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 3.0])
    for temperature in (0.5, 1.0, 2.0):
        shares = (
            torch.bincount(pick_best_tokens(add_noise(logits.expand(20_000, -1), temperature)), minlength=5) / 20_000
        )
        assert torch.allclose(shares, (logits / temperature).softmax(0), atol=0.015)  # four standard deviations
    assert add_noise(logits, 0) is logits


@pytest.mark.parametrize("piece", ["(", " (", "{", '"', '"(', " * (", " + "])
def test_one_piece_for_ever_still_ends_as_a_plan(vocabulary: Vocabulary, piece: str) -> None:
    assert check(parse(written_for_ever(vocabulary, make_plan_grammar(), piece))) == ()


def written_for_ever(vocabulary: Vocabulary, grammar: Grammar, text: str) -> str:
    """What a model writes that wants the tokens of `text` in turn, whichever of them the grammar lets it."""
    tokens = vocabulary.tokens.tokenize_str(text)
    constraint = Constraint(vocabulary, [grammar], 400)
    ids = torch.zeros((1, 1), dtype=torch.long)
    while True:
        logits = torch.zeros((1, vocabulary.size))
        logits[0, tokens] = 9.0
        logits[0, tokens[(ids.shape[1] - 1) % len(tokens)]] = 18.0
        token = constraint(ids, logits).argmax(-1, keepdim=True)
        if token.item() == vocabulary.end or ids.shape[1] > 400:
            break
        ids = torch.cat([ids, token], dim=1)
    assert not constraint.degraded[0]
    return vocabulary.tokens.decode_str(ids[0, 1:].tolist()).removeprefix(" ")


@held
@given(seeds, st.sampled_from([20, 96, 256]), st.sampled_from([0.0, 4.0, 7.0]))
def test_any_logits_write_a_logical_query_that_can_be_run(
    vocabulary: Vocabulary, seed: int, room: int, bias: float
) -> None:
    """Whether all or no documents match, no grammar can tell: such a query runs, and ranks nothing."""
    text, degraded = write(vocabulary, make_logic_grammar(), room, seed, bias, LOGIC_SIGNS)
    assert not degraded
    assert {fault.code for fault in logic.check(logic.parse(text[1:]))} <= {"contradiction", "tautology"}


@pytest.mark.parametrize("pieces", [['"', "x", '"', " AND "], ["NOT ("], ['"', "x", '"', " OR (NOT ("]])
def test_one_piece_for_ever_still_ends_as_a_logical_query(vocabulary: Vocabulary, pieces: list[str]) -> None:
    query = logic.parse(written_for_ever(vocabulary, make_logic_grammar(), "".join(pieces)))
    assert {fault.code for fault in logic.check(query)} <= {"contradiction", "tautology"}


@held
@given(seeds, st.sampled_from([96, 256]), st.sampled_from([0.0, 4.0, 8.0]))
def test_any_logits_write_a_tree_that_parses_and_checks(
    vocabulary: Vocabulary, seed: int, room: int, bias: float
) -> None:
    text, degraded = write(vocabulary, make_art_grammar(), room, seed, bias, TREE_SIGNS)
    assert not degraded
    tree = art.parse(text[1:])
    assert art.check(tree) == ()
    assert art.render(tree) == text[1:]


def test_a_tree_without_room_is_degraded(vocabulary: Vocabulary) -> None:
    assert write(vocabulary, make_art_grammar(), 20, 0, 0.0) == ("", True)


@held
@given(seeds)
def test_a_json_schema_is_kept_to_and_closed(vocabulary: Vocabulary, seed: int) -> None:
    schema = TASKS["decompose"].json_schema
    assert schema
    text, degraded = write(vocabulary, make_json_grammar(schema()), 160, seed, 2.0)
    assert not degraded
    assert TASKS["decompose"].parse(text)


def test_a_grammar_that_cannot_be_used_is_refused_in_one_line(vocabulary: Vocabulary) -> None:
    with pytest.raises(ConfigError, match=r"no grammar to decode by: .*foo"):
        vocabulary.make_matcher(Grammar((("output", '"a" foo'),), (), "", ""))


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


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_random_model_plans_every_question(engine: Engine, temperature: float) -> None:
    asked = QUESTIONS * 5
    prompts = [TASKS["translate_bnf"].render(QuestionInput(question)) for question in asked]
    completions = complete(engine, "translate_bnf", prompts, temperature, max_new_tokens=48)
    for question, completion in zip(asked, completions, strict=True):
        assert not (completion.degraded and question.isascii()), "only words of other scripts are lost by chance"
        assert 1 <= completion.tokens_out <= 48
        assert check(parse(completion.text)) == ()


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
def test_a_plan_without_room_is_the_question_itself_and_degraded(engine: Engine, question: str, leaf: str) -> None:
    """A long question leaves no positions, and none leaves any within three tokens. Placeholders lose their braces."""
    prompt = TASKS["translate_bnf"].render(QuestionInput(question))
    fine = TASKS["translate_bnf"].render(QuestionInput("Who is it?"))
    completion, beside = complete(
        engine, "translate_bnf", [prompt, fine], max_new_tokens=3 if len(question) < 99 else 40
    )
    assert completion.degraded
    assert completion.text == render(Atomic(leaf))
    assert check(parse(completion.text)) == ()
    assert beside.degraded == (len(question) < 99)


def test_a_model_that_ends_too_early_is_helped_to_an_end(vocabulary: Vocabulary) -> None:
    """The plan lacks its placeholder: it is added, and nothing else."""
    wanted = [*vocabulary.tokens.tokenize_str(" Who wrote it? * (When was it? + Where"), vocabulary.end]
    constraint = Constraint(vocabulary, [make_plan_grammar()], 256)
    ids = torch.zeros((1, 1), dtype=torch.long)
    for step in range(40):
        logits = torch.zeros((1, vocabulary.size))
        logits[0, wanted[min(step, len(wanted) - 1)]] = 9.0
        token = constraint(ids, logits).argmax(-1, keepdim=True)
        if token.item() == vocabulary.end:
            break
        ids = torch.cat([ids, token], dim=1)
    assert vocabulary.tokens.decode_str(ids[0, 1:].tolist()) == " Who wrote it? * (When was it? + Where {x})"
    assert constraint.degraded == [False]


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
    assert "Founder" in read_function_words() and Path(TINY).is_dir()


class _Empty:
    """A corpus without documents, and a generator that knows nothing."""

    async def search(self, query: str, k: int) -> list[Passage]:
        return []

    async def answer(self, request: GenerateRequest) -> Reading:
        return Reading("", ())


async def test_a_plan_that_could_not_be_closed_is_marked_in_the_trace(engine: Engine) -> None:
    revelator = LocalRevelator(engine)
    question = "电影 " * 500  # within the executor's limit of 2,000 characters, beyond the model's positions
    trace = await Executor(revelator, Sources.of_index(_Empty()), _Empty(), Limits()).run(question, strategy="compile")
    revelator.close()
    assert trace.degraded and "could not be closed" in (trace.reason or "")
    assert trace.nodes[0].kind == "translate" and trace.nodes[0].detail["degraded"]
    assert trace.plan == render(Atomic(question.strip()))
