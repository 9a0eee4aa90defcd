"""Words that are typed carelessly: what the index does not know is read as the nearest that it knows, and nothing else
changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from revelator.minilm import read_vocabulary
from revelator.trace import Trace
from serving.executor.executor import Executor
from serving.knowledge.sources import Sources
from serving.protocols import SearchResult
from serving.retrieval import ASKING_WORDS, INDEX, STOP_WORDS, Index, IndexSettings, LocalRetriever, build_index
from serving.retrieval.words import extract_words
from tests.serving.executor.world import Toy
from tests.serving.retrieval.toy_encoder import write_encoder

RARE = """
calloway lantern velmar quillon tarnack brevish oslund harbinger mirelle dovrefjell
skalderup vintermoor pallister wexcombe jorvane thistledown ambrosel kettleby ravensholt undergrove
""".split()  # noqa: SIM905
PLACES = ("Oslo", "Bergen", "Velm", "Tarn", "Lund")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
BIRTHS = [
    ("Ana Berg", "Ana Berg was born in Oslo in 1952."),
    ("Ana Holt", "Ana Holt was born in Lund in 1955."),
    ("Ana Moe", "Ana Moe was born in Velm in 1959."),
]


def write_index(folder: Path, settings: IndexSettings | None = None) -> Index:
    rows = [(f"The {word.title()}", f"The {word} is a house near {PLACES[n % 5]}.") for n, word in enumerate(RARE)]
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"title": t, "text": x}) + "\n" for t, x in rows + BIRTHS))
    build_index([corpus], folder / "ix", settings or IndexSettings())
    return Index.open(folder / "ix")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return write_index(tmp_path_factory.mktemp("spelling"))


@st.composite
def mistyped(draw: st.DrawFn) -> tuple[str, str]:
    """A rare word, and the same with a letter more, less, other, or two exchanged."""
    word = draw(st.sampled_from(RARE))
    place, letter = draw(st.integers(0, len(word) - 2)), draw(st.sampled_from(LETTERS))
    before, here, following, after = word[:place], word[place], word[place + 1], word[place + 2 :]
    edited = draw(st.sampled_from([letter + here + following, letter + following, following, following + here]))
    return word, before + edited + after


@given(mistyped(), st.sampled_from(["{}", "where is the {} in oslo", "WHERE IS THE {}?"]))
def test_a_rare_word_with_one_edit_finds_its_passage(index: Index, pair: tuple[str, str], question: str) -> None:
    word, typed = pair
    assume(typed not in read_vocabulary())
    found = index.search(question.format(typed), 5)
    assert f"The {word.title()}" in [passage.title for passage in found]


@given(st.lists(st.sampled_from([*RARE, *PLACES, "born", "house", "who", "1952"]), max_size=6), st.integers(1, 9))
def test_a_query_of_known_words_is_searched_as_it_stands(index: Index, words: list[str], k: int) -> None:
    query = " ".join(words)
    found = index.search(query.upper(), k)
    assert isinstance(found, SearchResult) and found.respelled == {}
    assert found == index.read_passages(*index._rank_sparse(query, k, None))


def test_a_name_without_capitals_and_with_a_letter_lost_is_found_and_the_result_says_as_what(index: Index) -> None:
    found = index.search("where was ana brg born", 3)
    assert isinstance(found, SearchResult) and found[0].title == "Ana Berg"
    assert found.respelled["brg"][0] == "berg"


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("burn barn", "English words, which the corpus does not say"),
        ("1954 a1952", "a number is never another"),
        ("xq zz", "too short to be sure"),
        ("zeppelinwerkstatt", "near to nothing"),
    ],
)
def test_what_is_no_slip_is_left_as_it_is(index: Index, query: str, why: str) -> None:
    assert index.search(query, 3) == [], why


def test_two_letters_may_be_wrong_in_a_long_word_alone(index: Index) -> None:
    assert index.search("thisledwon", 1)[0].title == "The Thistledown"
    assert index.search("tarnac", 1) != [] and index.search("tqrnac", 1) == []


def test_a_hybrid_index_reads_words_so_too(tmp_path: Path) -> None:
    index = write_index(tmp_path, IndexSettings(kind="hybrid", model=str(write_encoder(tmp_path / "model"))))
    found = index.search("jorvaen", 3)
    assert found[0].title == "The Jorvane" and found.respelled == {"jorvaen": ["jorvane"]}  # type: ignore[attr-defined]


def test_an_index_of_an_earlier_build_is_searched_as_before(tmp_path: Path) -> None:
    write_index(tmp_path)
    (tmp_path / "ix" / "words.txt").unlink()
    INDEX.write_manifest(tmp_path / "ix", INDEX.find_manifest(tmp_path / "ix"))
    index = Index.open(tmp_path / "ix")
    assert index.search("jorvaen", 3) == [] and index.search("jorvane", 3) != []


def test_the_words_that_an_index_knows_are_those_of_its_passages(index: Index) -> None:
    words = (index.folder / "words.txt").read_text().split()
    said = extract_words(
        " ".join(f"{passage.title} {passage.text}" for passage in map(index.passages.__getitem__, range(len(index))))
    )
    assert words == sorted({word for word in said if word.isalpha() and len(word) > 1})
    assert not STOP_WORDS.intersection(words) and not ASKING_WORDS.intersection(words)


async def test_the_trace_says_which_word_was_read_as_what(index: Index) -> None:
    world = Toy(knowledge={"where was ana brg born": ["Oslo"]})
    retriever = LocalRetriever(index)
    trace = await Executor(world, Sources.of_index(retriever), world).run("where was ana brg born", strategy="single")
    retriever.close()
    again = Trace.from_json(trace.to_json())
    [node] = again.nodes
    assert again.answers == ["Oslo"] and node.detail["respelled"]["brg"][0] == "berg"
    assert again.list_notes() == [f"no document says brg: read as {' or '.join(node.detail['respelled']['brg'])}"]
