"""How completions come about: beams, and what stands in where no beam is sound."""

from collections.abc import Callable, Sequence

import pytest

from revelator.errors import Cancelled
from revelator.plans.grammar import Grammar
from revelator.plans.language import BNF
from revelator.tasks import TASKS, QuestionInput
from serving.models.engine import Engine, GeneratedText
from serving.models.local import BEAMS, complete
from serving.protocols import TEXT, Decoding
from tests.causal import TINY
from tests.serving.toy_model import write_base

QUESTIONS = ["Who directed Tin Comet?", "Who wrote Lantern Row?", "Where was Ada Quill born?"]
PROMPTS = [TASKS["translate_bnf"].render(QuestionInput(question)) for question in QUESTIONS]
BEAM_TEXTS = [["Who directed Comet?", "Who directed Tin Comet?"], ["(((", "{x}"], []]


class Scripted:
    """An engine whose beams are known; what it writes itself says with what it was asked to."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def count_tokens(self, prompts: Sequence[str]) -> list[int]:
        return [len(prompt) for prompt in prompts]

    def search_beams(self, prompts: Sequence[str], width: int, room: int, cancelled: Callable[[], bool]) -> list:
        self.calls.append(("likeliest", width, room))
        return [
            [GeneratedText(text, 7, probability=0.9) for text in BEAM_TEXTS[PROMPTS.index(prompt)]]
            for prompt in prompts
        ]

    def generate(
        self,
        prompts: Sequence[str],
        temperature: float,
        room: int,
        grammars: Sequence[Grammar] | None,
        cancelled: Callable[[], bool],
    ) -> list[GeneratedText]:
        self.calls.append(("generate", len(prompts), temperature, grammars and len(grammars)))
        return [
            GeneratedText(f"written {PROMPTS.index(prompt)}", 3, degraded=prompt == PROMPTS[2]) for prompt in prompts
        ]


def test_the_soundest_beam_is_taken_and_the_grammar_holds_what_has_none() -> None:
    engine = Scripted()
    done = complete(engine, "translate_bnf", PROMPTS)  # type: ignore[arg-type]
    assert [(row.text, row.tokens_in, row.tokens_out, row.degraded) for row in done] == [
        ("Who directed Tin Comet?", len(PROMPTS[0]), 7, False),
        ("written 1", len(PROMPTS[1]), 3, False),
        (QUESTIONS[2], len(PROMPTS[2]), 3, True),
    ]
    assert [row.probabilities for row in done] == [{TEXT: 0.9}, {}, {}]
    assert engine.calls == [("likeliest", BEAMS, BNF.beam_token_limit), ("generate", 2, 0.0, 2)]


@pytest.mark.parametrize(
    ("temperature", "decoding", "grammars"), [(0.7, "beams", 3), (0.0, "grammar", 3), (0.0, "free", None)]
)
def test_a_draw_and_other_decodings_have_no_beams(temperature: float, decoding: str, grammars: int | None) -> None:
    engine = Scripted()
    done = complete(engine, "translate_bnf", PROMPTS, temperature, decoding=decoding)  # type: ignore[arg-type]
    assert [row.text for row in done] == ["written 0", "written 1", QUESTIONS[2]]
    assert engine.calls == [("generate", 3, temperature, grammars)]


def test_a_search_that_nobody_waits_for_ends_within_a_step(tmp_path_factory: pytest.TempPathFactory) -> None:
    base = write_base(tmp_path_factory.mktemp("base"))
    for runtime in ("auto", "transformers"):
        engine = Engine(base, threads=1, runtime=runtime)  # type: ignore[arg-type]
        for last in (0, 3):
            asked: list[bool] = []

            def cancelled(asked: list[bool] = asked, last: int = last) -> bool:
                asked.append(True)
                return len(asked) > last

            with pytest.raises(Cancelled):
                engine.search_beams(PROMPTS, 2, 200, cancelled)
            assert len(asked) == last + 1


def test_a_short_prompt_has_its_room_beside_one_that_fills_the_model() -> None:
    engine = Engine(TINY, threads=1)
    long = PROMPTS[0] * (engine.max_positions // engine.count_tokens(PROMPTS)[0])
    assert engine.max_positions - 40 < engine.count_tokens([long])[0] < engine.max_positions
    alone, beside = (engine.generate(prompts, 0.0, 40)[0] for prompts in (PROMPTS[:1], [PROMPTS[0], long]))
    assert beside.text == alone.text
    alone, beside = (engine.search_beams(prompts, 2, 40)[0] for prompts in (PROMPTS[:1], [PROMPTS[0], long]))
    assert [row.text for row in beside] == [row.text for row in alone] and len(alone) == 2


@pytest.mark.parametrize("decoding", ["likeliest", "any-words"])
def test_the_likeliest_sound_beam_is_taken_whatever_names_it_keeps(decoding: Decoding) -> None:
    [done] = complete(Scripted(), "translate_bnf", PROMPTS[:1], decoding=decoding)  # type: ignore[arg-type]
    assert done.text == "Who directed Comet?"
