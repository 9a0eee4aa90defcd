"""Which version answers which question: by the record alone, by the question's id alone, to the question's end."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revelator.errors import ArtifactError, Unavailable
from revelator.files import try_lock
from serving.models import releases
from serving.models.comparisons import CanaryRevelator, read_comparisons
from serving.models.releases import Canary, Release, Traffic, VersionContents, find_traffic_lock
from serving.protocols import Completion

FIRST = Release.of(VersionContents("revelator", 1, "", {}, {}), None)


def is_free(home: Path, version: str) -> bool:
    with try_lock(find_traffic_lock(home, version)) as is_mine:
        return is_mine


def test_a_question_keeps_the_version_that_was_promoted_when_it_came_and_holds_it_until_it_is_done(tmp_path):
    chooser = Traffic(tmp_path)
    with chooser.choose_version("before") as before:
        assert before.version == ""  # nothing is released
    releases.write_release(tmp_path, FIRST)
    with ExitStack() as questions:
        first = questions.enter_context(chooser.choose_version("a"))
        releases.write_release(tmp_path, replace(FIRST, version=2, previous=1))
        with chooser.choose_version("b") as second:
            assert (first.version, second.version) == ("1", "2")
            assert not is_free(tmp_path, "1") and not is_free(tmp_path, "2")
        assert not is_free(tmp_path, "1") and is_free(tmp_path, "2")
    assert is_free(tmp_path, "1")
    assert releases.find_choice().version == ""


async def test_tasks_that_a_question_starts_have_its_version(tmp_path):
    releases.write_release(tmp_path, FIRST)
    seen: dict[str, str] = {}
    chooser = Traffic(tmp_path)

    async def call(name: str) -> None:
        await asyncio.sleep(0)
        seen[name] = releases.find_choice().version

    async def question(name: str) -> None:
        with chooser.choose_version(name):
            await asyncio.gather(asyncio.create_task(call(name)))

    await asyncio.gather(question("a"), question("b"), call("outside"))
    assert seen == {"a": "1", "b": "1", "outside": ""}


@given(st.text(), st.floats(0.01, 0.99), st.integers(1, 100))
def test_a_canary_takes_a_request_by_its_id_alone_and_keeps_it_when_its_share_grows(request_id, share, version):
    small, large = Canary(version, share, ""), Canary(version, min(1.0, share * 1.5), "later")
    assert small.takes(request_id) == small.takes(request_id)
    assert small.takes(request_id) <= large.takes(request_id)
    assert Canary(version, 1.0, "").takes(request_id) and not Canary(version, 0.0, "").takes(request_id)


def test_a_canary_takes_its_share():
    taken = sum(Canary(3, 0.1, "").takes(f"question {n}") for n in range(10_000))
    assert 900 < taken < 1100  # 3 standard deviations are 90


def test_a_record_that_cannot_be_read_says_which_file(tmp_path):
    (tmp_path / "release.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"release\.json"):
        releases.read_release(tmp_path)


class Versions:
    """A revelator with several versions: each a function of the prompt, or an error."""

    def __init__(self, **versions: str | Exception) -> None:
        self.versions = versions
        self.asked: list[str] = []

    async def complete(self, task, prompts, *, temperature=0.0):
        choice = releases.find_choice()
        self.asked.append(choice.version)
        found = self.versions[f"v{choice.version}"]
        if isinstance(found, Exception):
            raise found
        choice.answered["revelator"].add(choice.version)
        return [Completion(found) for _ in prompts]


async def through_a_canary(home: Path, models: Versions, task: str = "route", temperature: float = 0.0):
    """What the question got, the versions that answered, and the rows of the comparison."""
    releases.write_release(home, replace(FIRST, canary=Canary(2, 1.0, "")))
    routed = CanaryRevelator(models, home)
    with Traffic(home).choose_version("q") as choice:
        [found] = await routed.complete(task, ["prompt"], temperature=temperature)
    await routed.close()
    return found.text, choice.versions()["revelator"], read_comparisons(home, 2)


async def test_the_canary_answers_and_both_are_compared(tmp_path):
    text, version, [row] = await through_a_canary(tmp_path, Versions(v1="single", v2="complex"))
    assert (text, version) == ("complex", "2")
    assert (row.task, row.agrees, row.canary_valid, row.released_valid, row.error) == ("route", False, True, True, "")


async def test_a_canary_that_fails_costs_no_question(tmp_path):
    text, version, [row] = await through_a_canary(tmp_path, Versions(v1="single", v2=Unavailable("gone")))
    assert (text, version) == ("single", "1")
    assert (row.error, row.canary_valid, row.agrees) == ("Unavailable", False, False)


async def test_a_released_version_that_fails_beside_the_canary_is_no_comparison(tmp_path):
    assert await through_a_canary(tmp_path, Versions(v1=Unavailable("gone"), v2="single")) == ("single", "2", [])
    with pytest.raises(Unavailable, match="both"):
        await through_a_canary(tmp_path, Versions(v1=Unavailable("both"), v2=Unavailable("gone")))


async def test_plans_agree_by_their_shape_and_samples_are_not_compared(tmp_path):
    plans = Versions(v1="Who wrote it? * Where was {writer} born?", v2="Who made X? * When did {maker} die?")
    _, _, [row] = await through_a_canary(tmp_path, plans, "translate_bnf")
    assert row.agrees and row.canary_valid
    broken = Versions(v1="Who wrote it?", v2="Where was {writer} born?")  # parses, and has no producer
    _, _, rows = await through_a_canary(tmp_path, broken, "translate_bnf")
    assert (rows[-1].canary_valid, rows[-1].released_valid) == (False, True)
    await through_a_canary(tmp_path, plans, "translate_bnf", temperature=0.7)
    assert plans.asked[-1] == "2" and len(read_comparisons(tmp_path, 2)) == 2


@pytest.mark.parametrize(
    ("task", "sound", "unsound"),
    [
        ("translate_logic", '"films" AND NOT "silent"', '"films" AND NOT "films"'),
        (
            "translate_art",
            '{"question": "Who made X?", "relate": {"head": "X", "to": "made by"}}',
            '{"question": "Who made X?", "relate": {"head": "[7]", "to": "made by"}}',
        ),
    ],
)
async def test_queries_and_trees_that_do_not_check_are_no_valid_plans(tmp_path, task, sound, unsound):
    _, _, [row] = await through_a_canary(tmp_path, Versions(v1=sound, v2=unsound), task)
    assert (row.canary_valid, row.released_valid) == (False, True)
