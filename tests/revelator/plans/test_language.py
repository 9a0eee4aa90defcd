"""What holds for every language of plans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revelator.artifact import ADAPTER_WEIGHTS, EMBEDDED_BASE, digest_base, verify_adapter, write_manifest
from revelator.errors import ArtifactError
from revelator.plans import language as languages
from revelator.plans.grammar import Grammar, read_grammar_file
from revelator.plans.language import LANGUAGES, grammar_hash
from revelator.tasks import TASKS, QuestionInput, translate_task

EVERY = sorted(LANGUAGES)
PLANS = {
    "bnf": (
        "Who directed UHF? * When was {director} born?",
        "Who wrote Dune? * Where did {author} die?",
        "Who is {x}?",
    ),
    "logic": ('"a" AND NOT "b"', '"c d" AND NOT "e"', '"a" AND NOT "a"'),
    "art": (
        '{"question": "Who made X?", "relate": {"head": "X", "to": "made by"}}',
        '{"question": "Where is Y?", "relate": {"head": "Y", "to": "place"}}',
        '{"question": "Who made X?", "relate": {"head": "[7]", "to": "made by"}}',
    ),
}


@pytest.mark.parametrize("name", EVERY)
@given(st.text(min_size=1, max_size=60).filter(lambda text: any(c.isalnum() for c in text)))
def test_the_fallback_of_any_question_parses_and_checks(name, question):
    task = translate_task(name)
    plan = task.parse_sound(task.write_fallback(task.render(QuestionInput(question))))
    assert plan is not None and LANGUAGES[name].count_leaves(plan) == 1


@pytest.mark.parametrize("name", EVERY)
def test_plans_have_one_shape_whatever_their_words(name):
    language = LANGUAGES[name]
    one, other, wrong = PLANS[name]
    assert language.shape(language.parse(one)) == language.shape(language.parse(other))
    assert language.shape(language.parse(one)) != language.shape(language.fallback("Who made X?"))
    assert language.diagnose(one)["valid"] and not language.diagnose(wrong)["valid"]
    assert translate_task(name).make_comparable(one) == translate_task(name).make_comparable(other)


@pytest.mark.parametrize("name", EVERY)
def test_what_is_wrong_points_into_the_text_as_it_was_written(name):
    text = f"  {PLANS[name][2]} "
    [found] = LANGUAGES[name].diagnose(text)["diagnostics"]
    assert text[found["start"] : found["end"]].strip() and found["hint"]


@pytest.mark.parametrize("name", EVERY)
def test_a_grammar_closes_what_it_opens(name):
    grammar = LANGUAGES[name].grammar()
    assert isinstance(grammar, Grammar) and grammar.text.startswith('start: " "')


def test_each_translate_task_has_its_language_and_no_other_task_has_one():
    assert {task.language.name for task in TASKS.values() if task.language} == set(EVERY)
    assert [name for name, task in TASKS.items() if bool(task.language) is not name.startswith("translate")] == []
    with pytest.raises(TypeError, match="writes no plans"):
        TASKS["refine"].write_fallback("Q?")


@pytest.mark.parametrize("name", EVERY)
def test_an_adapter_is_refused_once_the_definition_of_any_language_changed(name, tmp_path, monkeypatch):
    (tmp_path / ADAPTER_WEIGHTS).write_text("weights")
    digest = digest_base(EMBEDDED_BASE)
    write_manifest(tmp_path, base_name="mini", base_digest=digest, data_digest="d" * 64, run_id="")
    verify_adapter(tmp_path, EMBEDDED_BASE)
    changed = LANGUAGES[name].file
    monkeypatch.setattr(languages, "read_grammar_file", lambda file: read_grammar_file(file) + " " * (file == changed))
    with pytest.raises(ArtifactError, match="grammar: sha256"):
        verify_adapter(tmp_path, EMBEDDED_BASE)


def test_a_comment_in_a_grammar_file_changes_no_hash(monkeypatch):
    before = grammar_hash()
    monkeypatch.setattr(languages, "read_grammar_file", lambda file: "// a comment\n" + read_grammar_file(file))
    assert grammar_hash() == before
