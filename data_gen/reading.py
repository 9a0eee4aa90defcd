"""`revelator data reading`: published sets as rows from which a reader learns, without a held-out question."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import click

from revelator.errors import DataError

if TYPE_CHECKING:
    from revelator.reading import ReadingRow

FOLDER = click.Path(path_type=Path)


@click.command()
@click.argument("files", nargs=-1)
@click.option("--out", required=True, type=FOLDER, help="Folder of NAME.jsonl.gz, one of each FILE; its files go.")
@click.option("--held-out", help="Hashes of questions that training must not read (data_gen/leakage.py).")
@click.option("--corpus", help="Titles and texts in which answers of questions without a passage are looked for.")
@click.option(
    "--lists", is_flag=True, help="Several answers of a question without a passage are a list, not spellings."
)
@click.option("--everyday", type=click.IntRange(1), help="Passages to draw about several things of one kind.")
@click.option("--names", type=FOLDER, help="With --everyday: a file of titles, which name things and people.")
@click.option("--seed", default=13, show_default=True, help="Of --everyday.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def reading(
    files: tuple[str, ...],
    out: Path,
    held_out: str | None,
    corpus: str | None,
    lists: bool,
    everyday: int | None,
    names: Path | None,
    seed: int,
    as_json: bool,
) -> None:
    """Make rows for reading (question, passage, answers) of published sets, or of words and wordings (--everyday).

    FILES are recognised by their rows: SQuAD-like ones, QED, MuSiQue with paragraphs, HotpotQA and 2WikiMultiHopQA with
    context, annotated questions (of `data world`), and, with --corpus, questions and answers alone (Natural Questions,
    TriviaQA; with --lists WebQuestions). Triples of 2WikiMultiHopQA without context are read in the --corpus as well.

    \b
    Example:
      revelator data reading reading/squad2_dev.jsonl.gz qed/qed_dev.jsonl.gz --held-out held_out.sha256 \\
        --out runs/reading
      revelator data reading --everyday 8000 --names wiki_intros.jsonl.gz --out runs/reading-everyday
    """
    if not files and not everyday:
        raise click.UsageError("Name FILES, or --everyday N.")
    if bool(everyday) != bool(names):
        raise click.UsageError("--everyday and --names go together.")
    from data_gen.leakage import find_leak, load_held_out
    from revelator.files import replace_file, sha256_file, staged_folder, write_json

    held = load_held_out(Path(held_out)) if held_out else {}
    search = Bm25(_load(corpus)) if corpus else None
    counts: dict[str, dict[str, int]] = {}
    with staged_folder(out) as stage:
        for name, file, rows, dropped in _list_sources(files, search, lists, everyday, names, seed):
            kept = []
            for row in rows:
                if leak := find_leak(held, row.question):
                    dropped[f"held out ({leak})"] += 1
                else:
                    kept.append(row)
            if not kept:
                hint = "give a set of passages, or questions and answers with --corpus"
                raise DataError("no row for reading comes of this file", where=file, hint=hint)
            with replace_file(stage / f"{name}.jsonl.gz") as target, gzip.GzipFile("", "wb", 9, target, 0) as packed:
                packed.write("".join(f"{row.to_json()}\n" for row in kept).encode())
            counts[name] = {**_count(kept), **dropped}
        manifest = {"counts": counts, "files": {p.name: sha256_file(p) for p in sorted(stage.glob("*.gz"))}}
        write_json(stage / "manifest.json", manifest)
    if as_json:
        click.echo(json.dumps(manifest))
        return
    for name, each in counts.items():
        click.echo(f"{name}: " + ", ".join(f"{count:,} {what}" for what, count in each.items() if count))


def _list_sources(
    files: Sequence[str], search: Bm25 | None, lists: bool, everyday: int | None, names: Path | None, seed: int
) -> Iterator[tuple[str, str, Iterable[ReadingRow], Counter[str]]]:
    """(name, where its rows come from, the rows, what was dropped on the way) of each file, and of what is drawn."""
    from data_gen.augment.substitution import load_names
    from data_gen.everyday.passages import Teller
    from data_gen.sources.reading import convert

    for file in files:
        dropped = Counter[str]()
        yield Path(file).name.partition(".")[0], file, convert(_load(file), search, dropped, lists=lists), dropped
    if everyday and names:
        teller = Teller(load_names(names), Random(seed))
        drawn = (row for number in range(everyday) for row in teller.draw(f"everyday:{seed}-{number}"))
        yield "everyday", "--everyday", drawn, Counter[str]()


def _count(rows: Iterable[Any]) -> dict[str, int]:
    kinds = Counter("yes or no" if r.verdict else "list" if r.all_of else "span" if r.answers else "none" for r in rows)
    return dict(sorted(kinds.items()))


def _load(file: str) -> list[dict[str, Any]]:
    from data_gen.sources.files import MalformedRow, read_file_rows

    rows = []
    for line, row in read_file_rows(file):
        if isinstance(row, MalformedRow) or not isinstance(row, dict):
            reason = row.reason if isinstance(row, MalformedRow) else "not an object"
            raise DataError(reason, where=f"{file}, line {line}", hint="give the file as it was published")
        rows.append(row)
    return rows


class Bm25:
    """BM25 over titles and texts, in memory."""

    def __init__(self, passages: Sequence[dict[str, Any]]) -> None:
        import bm25s

        self._passages = [(passage["title"], passage["text"]) for passage in passages]
        self._texts = dict(self._passages)
        self._index = bm25s.BM25()
        texts = [f"{title} {text}" for title, text in self._passages]
        self._index.index(bm25s.tokenize(texts, stopwords="en", show_progress=False), show_progress=False)

    def find(self, title: str) -> str | None:
        return self._texts.get(title)

    def search(self, questions: Sequence[str], k: int) -> list[list[tuple[str, str]]]:
        import bm25s

        asked = bm25s.tokenize(list(questions), stopwords="en", show_progress=False)
        found, _ = self._index.retrieve(asked, k=min(k, len(self._passages)), show_progress=False)
        return [[self._passages[number] for number in row] for row in found]
