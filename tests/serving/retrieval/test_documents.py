"""Documents as passages, and an index of them that is added to, changed and killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from revelator.errors import DataError
from revelator.minilm import TOKENIZER, fetch_minilm
from serving.retrieval import Index, build_index
from serving.retrieval.corpora import find_files
from serving.retrieval.cutting import CHARACTERS, Paragraph, pack
from serving.retrieval.documents import read_document
from tests.serving.retrieval.conftest import GUIDE


def test_a_folder_that_is_given_as_a_link_is_read(library: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(library)
    found, left = find_files([tmp_path / "link"], tmp_path / "out")
    assert len(found) == 6 and not left


def test_markdown_is_cut_at_headings_and_loses_its_marks(tmp_path: Path) -> None:
    path = tmp_path / "lomvi.md"
    path.write_text(GUIDE)
    first, second = read_document(path, "ships/lomvi.md")
    assert first.title == "The Lomvi"
    assert first.text == "The captain of the Lomvi is Ana Berg. She was born in Holm."
    assert second.title == "The Lomvi: Engine"
    assert second.text == "- gearbox by Ro & Sons\n- shaft\npart: propeller; maker: Holm Works"
    name, _, place = second.id.partition("#")
    start, end = map(int, place.split("-"))
    assert name == "ships/lomvi.md"
    assert GUIDE[start:end].startswith("* gearbox") and GUIDE[start:end].endswith("| Holm Works |\n")


def test_every_kind_of_document_in_a_folder_is_found_by_its_words(library: Path, tmp_path: Path) -> None:
    manifest = build_index([library], tmp_path / "ix")
    assert manifest["unread"] == {}
    index = Index.open(tmp_path / "ix")
    for query, file in (
        ("captain", "ships/lomvi.md"),
        ("propeller maker", "ships/lomvi.md"),
        ("cook", "crew.html"),
        ("Friday", "log.txt"),
        ("leave days", "leave.docx"),
        ("employs people", "report.pdf"),
        ("harbour", "rows"),
    ):
        assert index.search(query, 1)[0].id.startswith(file), query
    assert index.search("alert", 1) == []


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("cut.pdf", b"%PDF-1.4 no", "it cannot be read as PDF"),
        ("cut.docx", b"PK no", "it cannot be read as DOCX"),
        ("cut.ipynb", b"{no", "it cannot be read as IPYNB"),
        ("empty.md", b"", "no text in it"),
        ("photo.png", b"\x89PNG", "not a kind of file that is read"),
        ("old.gz", b"\x1f\x8b", "not a kind of file that is read"),
        ("costs.csv", b"part,price\nshaft,9,4\n", "3 fields do not match the header"),
        ("latin.csv", b"part;price\nstra\xdfe;9\n", "not UTF-8 text"),
        ("noise.txt", b"\x00\x01\xfe" * 99, "not text"),
        ("noise.md", b"a word\x00", "not text"),
    ],
)
def test_what_cannot_be_read_is_listed_and_the_rest_is_indexed(
    library: Path, tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    (library / name).write_bytes(content)
    manifest = build_index([library], tmp_path / "ix")
    assert list(manifest["unread"]) == [name]
    assert manifest["unread"][name].startswith(reason)
    assert Index.open(tmp_path / "ix").search("captain", 1)


def test_rows_of_a_file_that_is_named_itself_must_be_whole(library: Path, tmp_path: Path) -> None:
    (library / "costs.csv").write_text("part,price\nshaft,9,4\n")
    with pytest.raises(DataError, match="fields do not match"):
        build_index([library / "costs.csv", library / "ships"], tmp_path / "ix")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("old/parts.csv", b'\xef\xbb\xbfid,Part,Maker\n1,shaft,"Holm Works, Sund"\n,,\n2,gear,\n'),
        ("old/parts.csv", b"id;Part;Maker\n1;shaft;Holm Works, Sund\n2;gear;\n"),
        ("old/parts.csv", "id;Part;Maker\r\n1;shaft;Holm Works, Sund\r\n2;gear;\r\n".encode("utf-16")),
        ("old/parts.tsv", "id\tPart\tMaker\n1\tshaft\tHolm Works, Sund\n2\tgear\t\n".encode("utf-16")),
        ("old/parts.tsv", b"id\tPart\tMaker\n1\tshaft\tHolm Works, Sund\n2\tgear\t\n"),
    ],
)
def test_rows_of_a_table_with_columns_of_its_own_are_read_together(tmp_path: Path, name: str, content: bytes) -> None:
    for folder in ("old", "new"):  # two files of one name
        (tmp_path / folder).mkdir()
        (tmp_path / name.replace("old", folder)).write_bytes(content)
    build_index([tmp_path], tmp_path / "ix")
    [table] = (each for each in Index.open(tmp_path / "ix").search("shaft gear", 9) if each.file == name)
    assert table.title == "parts"
    assert table.text == "id: 1; Part: shaft; Maker: Holm Works, Sund\nid: 2; Part: gear"


def test_rows_of_a_table_in_a_document_are_a_passage(tmp_path: Path) -> None:
    path = tmp_path / "parts.md"
    table = "| part | made_by | |\n|---|---|---|\n| **shaft** | Holm Works | new |\n| gear | | |\n| | | |\n"
    path.write_text(f"# Stock\n\nWhat we keep.\n\n{table}\nThat is all.\n")
    assert [(each.title, each.text) for each in read_document(path, "parts.md")] == [
        ("Stock", "What we keep.\npart: shaft; made by: Holm Works; new\npart: gear\nThat is all."),
    ]


def test_a_heading_with_nothing_below_it_is_text(tmp_path: Path) -> None:
    path = tmp_path / "log.md"
    path.write_text(
        "# Log\n\n## Launched in 1912\n\n## Sold to Ro & Sons\n\n### For 9 crowns\n\n## Crew\n\nAna Berg.\n"
    )
    assert [(each.title, each.text) for each in read_document(path, "log.md")] == [
        ("Log", "Launched in 1912"),
        ("Log: Sold to Ro & Sons", "For 9 crowns"),
        ("Log: Crew", "Ana Berg."),
    ]


def test_the_title_of_a_document_without_one_heading_above_all_is_its_name(tmp_path: Path) -> None:
    path = tmp_path / "leave.md"
    path.write_text("Of all.\n\n## Days\n\nThirty.\n\n## Who signs\n\nBo.\n")
    assert [each.title for each in read_document(path, "leave.md")] == ["leave", "leave: Days", "leave: Who signs"]


FACTS = """---
title: The yard's rules
owner: Ana Berg
last_review: 2026-02-14
tags: [piles, planks]
draft: false
layout: {side: left}
summary: SUMMARY
---
""".replace("SUMMARY", "long " * 60)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_front_matter_is_the_title_of_a_document_and_facts_about_it(tmp_path: Path, end: str) -> None:
    path = tmp_path / "rules.md"
    path.write_text(f"{FACTS}# Leave\n\nThirty days.\n".replace("\n", end), newline="")
    facts, leave = read_document(path, "rules.md")
    assert facts.title == "The yard's rules"
    assert facts.text == "Owner: Ana Berg\nLast review: 2026-02-14\nTags: piles, planks"
    assert (leave.title, leave.text) == ("The yard's rules: Leave", "Thirty days.")
    path.write_text(f"{FACTS}# The yard's rules\n\nThirty days.\n")
    [whole] = read_document(path, "rules.md")
    assert whole.title == "The yard's rules" and whole.text.endswith("planks\nThirty days.")


@pytest.mark.parametrize("text", ["title: [The yard", "We have rules.", "- one\n- two", "a: b: c"])
def test_malformed_front_matter_is_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rules.md"
    path.write_text(f"---\n{text}\n---\n# Leave\n\nThirty days.\n")
    first, last = read_document(path, "rules.md")
    assert (first.text, last.title, last.text) == (text, "Leave", "Thirty days.")


def test_html_within_markdown_is_read(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("<h1 align=center>Ro</h1>\n\n<table><tr><td>Editor</td><td>Jon</td></tr></table>\n\n<!-- no -->\n")
    assert [(each.title, each.text) for each in read_document(path, "page.md")] == [("Ro", "Editor: Jon")]


def test_a_text_file_in_utf_16_is_read(tmp_path: Path) -> None:
    path = tmp_path / "note.md"
    path.write_text("The mooring master is Åse Lund.", encoding="utf-16")
    assert [each.text for each in read_document(path, "note.md")] == ["The mooring master is Åse Lund."]


def test_a_word_without_an_end_is_cut_as_well(tmp_path: Path) -> None:
    path = tmp_path / "blob.txt"
    path.write_text("x" * 100_000)
    texts = [passage.text for passage in read_document(path, "blob.txt")]
    assert "".join(texts) == path.read_text()
    assert max(map(len, texts)) <= 200 * CHARACTERS


def test_an_index_inside_of_its_folder_is_no_part_of_itself(library: Path) -> None:
    first = build_index([library], library / "ix")
    second = build_index([library], library / "ix")
    assert second["corpora"] == first["corpora"]


def test_a_book_without_an_empty_line_is_cut_in_one_pass(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_text(" ".join(f"Sentence {number} of the book says no more." for number in range(8_000)))
    passages = list(read_document(path, "book.txt"))
    assert " ".join(passage.text for passage in passages) == path.read_text()
    assert len({passage.id for passage in passages}) == len(passages) > 200


def test_a_folder_without_anything_to_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "empty.md").write_text("")
    with pytest.raises(DataError, match=r"no passage .*empty\.md: no text in it"):
        build_index([tmp_path / "docs"], tmp_path / "ix")


words = st.text("abcdefghij", min_size=1, max_size=9)
sentences = st.lists(words, min_size=1, max_size=60).map(" ".join)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    opened = Tokenizer.from_file(str(fetch_minilm() / TOKENIZER))
    opened.no_truncation()
    opened.no_padding()
    return opened


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from("AB"), sentences), min_size=1, max_size=12), st.integers(16, 60))
def test_no_word_is_lost_and_no_passage_is_longer_than_it_may_be(
    tokenizer: Tokenizer, parts: list[tuple[str, str]], size: int
) -> None:
    paragraphs = [Paragraph((heading,), text, 0, len(text)) for heading, text in parts]
    runs = list(pack(paragraphs, size, size // 4))
    for run in runs:
        assert len({paragraph.headings for paragraph in run}) == 1
        assert sum(len(tokenizer.encode(each.text, add_special_tokens=False).ids) for each in run) <= size
    cut = [each for run in runs for each in run]
    distinct = list({id(each): each for each in cut}.values())
    assert " ".join(each.text for each in distinct).split() == " ".join(text for _, text in parts).split()
