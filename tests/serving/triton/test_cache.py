"""Equal questions of one version are answered once, where that was asked for."""

from __future__ import annotations

import re
import urllib.request

import pytest

from revelator.trace import Trace
from serving.triton import control, repository
from serving.triton.inside.executor import AnswerCache
from serving.triton.repository import Settings
from tests.serving.conftest import FAST


def whole(question: str, version: str = "1", **changes) -> Trace:
    return Trace(question, "auto", answer="Orland", answers=["Orland"], versions={"revelator": version}, **changes)


def cache(entries: int = 2, looks: list[str] | None = None) -> AnswerCache:
    return AnswerCache(entries, [].append if looks is None else looks.append)


def test_an_equal_question_with_equal_options_to_the_same_version_has_the_same_answer():
    kept = cache(looks=(looks := []))
    assert kept.find("Where?", "{}", "1") is None
    kept.store("Where?", "{}", "1", whole("Where?"))
    assert kept.find("Where?", "{}", "1") == whole("Where?")
    others = [("where?", "{}", "1"), ("Where?", '{"plan": "x"}', "1"), ("Where?{", "}", "1"), ("Where?", "{}", "2")]
    assert [kept.find(*other) for other in others] == [None] * 4
    assert looks == ["miss", "hit", *["miss"] * 4]


def test_it_holds_no_more_than_it_was_told_and_drops_what_was_not_used_longest():
    kept = cache()
    for name in "ab":
        kept.store(name, "", "1", whole(name))
    assert kept.find("a", "", "1")
    kept.store("c", "", "1", whole("c"))
    assert [bool(kept.find(name, "", "1")) for name in "abc"] == [True, False, True]


@pytest.mark.parametrize(
    "changes",
    [{"outcome": "partial"}, {"outcome": "unanswered"}, {"outcome": "failed"}, {"degraded": True}, {"version": "1, 2"}],
)
def test_what_did_not_come_out_whole_is_asked_again(changes):
    kept = cache()
    kept.store("q", "", "1", whole("q", **changes))
    assert kept.find("q", "", "1") is None


@pytest.fixture
def caching(world):
    """The served executor with a cache, which it has not by itself."""
    assert "cache" not in repository.read_parameters(world.home, "executor")
    repository.lay_out(world.home, Settings(index=world.index, cache=100))
    control.load(world.home, world.url, "executor", 1)
    yield world
    repository.lay_out(world.home, Settings(index=world.index, cache=0))
    control.load(world.home, world.url, "executor", 1)


def test_a_served_answer_is_kept_and_counted(caching, client):
    first = client.ask(FAST, strategy="single")
    caching.endpoint.knowledge[FAST] = ["Elsewhere"]
    assert client.ask(FAST, strategy="single") == first
    assert client.ask(FAST, strategy="single", limits={"documents": 3}).answers == ("Elsewhere",)
    with urllib.request.urlopen(caching.metrics) as page:
        counts = re.findall(r'^revelator_cache_lookups_total{.*result="(\w+)".*} (\d+)', page.read().decode(), re.M)
    assert dict(counts) == {"hit": "1", "miss": "2"}
