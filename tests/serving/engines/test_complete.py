"""How completions come about: beams, and what stands in where no beam is sound."""

from collections.abc import Callable, Sequence

import pytest

from revelator.errors import Cancelled
from revelator.language.decoding import Grammar
from revelator.tasks import TASKS, TranslateInput
from serving.engines.engine import Engine, Written
from serving.engines.revelator_model import BEAMS, MORE_BEAMS, PLAN_TOKENS, complete
from tests.serving.toy_model import write_base

QUESTIONS = ["Who directed Tin Comet?", "Who wrote Lantern Row?", "Where was Ada Quill born?"]
PROMPTS = [TASKS["translate_bnf"].render(TranslateInput(question)) for question in QUESTIONS]
BEAM_TEXTS = [["Who directed Comet?", "Who directed Tin Comet?"], ["(((", "{x}"], []]


class Scripted:
    """An engine whose beams are known; what it writes itself says with what it was asked to."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def count_tokens(self, prompts: Sequence[str]) -> list[int]:
        return [len(prompt) for prompt in prompts]

    def likeliest(self, prompts: Sequence[str], width: int, room: int, cancelled: Callable[[], bool]) -> list:
        self.calls.append(("likeliest", width, room))
        return [[Written(text, 7) for text in BEAM_TEXTS[PROMPTS.index(prompt)]] for prompt in prompts]

    def generate(
        self,
        prompts: Sequence[str],
        temperature: float,
        room: int,
        grammars: Sequence[Grammar] | None,
        cancelled: Callable[[], bool],
    ) -> list[Written]:
        self.calls.append(("generate", len(prompts), temperature, grammars and len(grammars)))
        return [Written(f"written {PROMPTS.index(prompt)}", 3, degraded=prompt == PROMPTS[2]) for prompt in prompts]


def test_the_soundest_beam_is_taken_and_the_grammar_holds_what_has_none() -> None:
    engine = Scripted()
    done = complete(engine, "translate_bnf", PROMPTS)  # type: ignore[arg-type]
    assert [(row.text, row.tokens_in, row.tokens_out, row.degraded) for row in done] == [
        ("Who directed Tin Comet?", len(PROMPTS[0]), 7, False),
        ("written 1", len(PROMPTS[1]), 3, False),
        (QUESTIONS[2], len(PROMPTS[2]), 3, True),
    ]
    assert engine.calls == [("likeliest", BEAMS, PLAN_TOKENS), ("generate", 2, 0.0, 2)]


class Wider(Scripted):
    """Four beams lose a name of the first question and two of the third; sixteen keep more, as many, or less."""

    def __init__(self, wide: dict[int, str]) -> None:
        super().__init__()
        self.wide = wide

    def likeliest(self, prompts: Sequence[str], width: int, room: int, cancelled: Callable[[], bool]) -> list:
        places = [PROMPTS.index(prompt.removesuffix("?" * 600)) for prompt in prompts]
        self.calls.append((width, room, places, cancelled()))
        texts = dict(enumerate(["Who directed Comet?", "Who wrote Lantern Row?", "Where was he born?"]))
        texts |= self.wide if width == MORE_BEAMS else {}
        return [[Written(texts[place], width)] for place in places]


def test_where_four_beams_lose_a_name_sixteen_are_asked_and_taken_if_they_keep_more() -> None:
    engine = Wider({0: "Who directed the Comet?", 2: "Where was Quill born?"})
    done = complete(engine, "translate_bnf", PROMPTS, cancelled=lambda: True)  # type: ignore[arg-type]
    assert [(row.text, row.tokens_out) for row in done] == [
        ("Who directed Comet?", BEAMS),
        ("Who wrote Lantern Row?", BEAMS),
        ("Where was Quill born?", MORE_BEAMS),
    ]
    assert engine.calls[:2] == [(BEAMS, PLAN_TOKENS, [0, 1, 2], True), (MORE_BEAMS, PLAN_TOKENS, [0, 2], True)]
    done = complete(Wider({0: "Who directed it?", 2: "(("}), "translate_bnf", PROMPTS)  # type: ignore[arg-type]
    assert [row.text for row in done] == ["Who directed Comet?", "Who wrote Lantern Row?", "Where was he born?"]


@pytest.mark.parametrize(
    ("task", "text", "longer"),
    [
        ("translate_bnf", "Who directed Comet?", "?" * 600),
        ("translate_logic", '"Comet"', ""),
        ("translate_art", '{"question": "Who?", "search": {"name": "Comet"}}', ""),
    ],
    ids=["a long prompt", "a query", "a tree"],
)
def test_what_is_not_searched_wider(task: str, text: str, longer: str) -> None:
    engine = Scripted()
    prompt = TASKS[task].render(TranslateInput(QUESTIONS[0])) + longer

    def likeliest(prompts: Sequence[str], width: int, *_: object) -> list[list[Written]]:
        engine.calls.append(("likeliest", width))
        return [[Written(text, 1)] for _ in prompts]

    engine.likeliest = likeliest  # type: ignore[method-assign, assignment]
    assert [row.text for row in complete(engine, task, [prompt])] == [text]  # type: ignore[arg-type]
    assert engine.calls[0] == ("likeliest", BEAMS) and ("likeliest", MORE_BEAMS) not in engine.calls


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
    for runtime in ("onnx", "transformers"):
        engine = Engine(base, threads=1, runtime=runtime)  # type: ignore[arg-type]
        for last in (0, 3):
            asked: list[bool] = []

            def cancelled(asked: list[bool] = asked, last: int = last) -> bool:
                asked.append(True)
                return len(asked) > last

            with pytest.raises(Cancelled):
                engine.likeliest(PROMPTS, 2, 200, cancelled)
            assert len(asked) == last + 1


def test_a_short_prompt_has_its_room_beside_one_that_fills_the_model() -> None:
    engine = Engine("tiny", threads=1)
    long = PROMPTS[0] * (engine.max_positions // engine.count_tokens(PROMPTS)[0])
    assert engine.max_positions - 40 < engine.count_tokens([long])[0] < engine.max_positions
    alone, beside = (engine.generate(prompts, 0.0, 40)[0] for prompts in (PROMPTS[:1], [PROMPTS[0], long]))
    assert beside.text == alone.text
    alone, beside = (engine.likeliest(prompts, 2, 40)[0] for prompts in (PROMPTS[:1], [PROMPTS[0], long]))
    assert [row.text for row in beside] == [row.text for row in alone] and len(alone) == 2
