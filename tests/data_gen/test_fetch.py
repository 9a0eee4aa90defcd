"""`revelator data fetch` from a server on loopback that has files of the published forms, with rows made up here."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from data_gen.fetch import PUBLISHED, PublishedSet, fetch, find_set, load_published
from data_gen.fetch_rows import open_members
from data_gen.sources.formats import READERS
from evaluation.run import evaluate
from revelator.cli import revelator
from revelator.errors import ArtifactError, ConfigError, DataError
from revelator.reading import load_rows
from tests.data_gen.conftest import MUSIQUE, TWO_WIKI
from tests.data_gen.published import ROWS
from tests.loopback import find_port, serving

PATIENCE = 60.0  # seconds until a test that waits for an event fails


class Handler(BaseHTTPRequestHandler):
    """Serves `server.files`, whole or from a byte on."""

    server: Mirror

    def do_GET(self) -> None:
        path, asked = self.path, self.headers["Range"]
        self.server.asked.append((path, asked))
        if place := self.server.redirects.get(path):
            return self._send(302, b"", Location=place)
        if path not in self.server.files:
            return self._send(404, b"")
        content = self.server.files[path]
        tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        if start and self.headers["If-Range"] == tag:
            span = f"bytes {start}-{len(content) - 1}/{len(content)}"
            return self._send(206, content[start:], ETag=tag, Content_Range=span)
        return self._send(200, content, ETag=tag)

    def _send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        sent, self.server.cut_at = body[: self.server.cut_at], None
        self.wfile.write(sent)
        if len(sent) < len(body):
            self.wfile.flush()
            self.server.was_cut.set()
            self.server.released.wait(PATIENCE)
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Mirror(ThreadingHTTPServer):
    """Files by path. The next reply sends `cut_at` bytes, sets `was_cut`, and is closed once `released` is set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.cut_at: int | None = None
        self.was_cut, self.released = threading.Event(), threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    server = Mirror()
    with serving(server, server.released.set):
        yield server


def write_lines(rows: list[Any]) -> bytes:
    return "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows).encode()


def write_parquet(rows: list[dict[str, Any]]) -> bytes:
    target = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), target)
    return target.getvalue()


def write_csv(rows: list[dict[str, Any]]) -> bytes:
    target = io.StringIO()
    writer = csv.DictWriter(target, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    return target.getvalue().encode()


def write_zip(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return target.getvalue()


def write_tar(entries: dict[str, bytes | str]) -> bytes:
    """A gzipped tar file; an entry whose content is text is a symbolic link to that path."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, content in entries.items():
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                archive.addfile(entry)
            else:
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def make_published() -> dict[str, bytes]:
    """A file of the published form for each download of `published.yaml`."""
    paragraphs = [{"idx": i, "title": f"T{i}", "paragraph_text": f"Text {i}.", "is_supporting": True} for i in range(3)]
    musique = [{"paragraphs": paragraphs, **row} for row in MUSIQUE]
    nested = ("context", "supporting_facts", "evidences")  # texts in the parquet files, as the authors publish them
    context = [["Marn", ["Marn is a county."]]]
    two_wiki = [
        {name: json.dumps(value) if name in nested else value for name, value in {"context": context, **row}.items()}
        for row in TWO_WIKI
    ]
    hotpot = {**ROWS["hotpotqa"], "id": "h1"}
    hotpot["supporting_facts"] = {"title": ["Orn", "Sedge"], "sent_id": [1, 0]}
    hotpot["context"] = {"title": ["Orn", "Marn"], "sentences": [["Orn is a hill."], ["A county."]]}
    choices = {"label": ["A", "B"], "text": ["cup", "sieve"]}
    articles = json.dumps({"version": "v2.0", "data": [ROWS["squad"]]}).encode()
    names = {f"/wiki/Orn_Fell_{i}": f"Orn Fell {i} is a hill ." for i in range(120)}
    return {
        "musique_ans_v1.0_dev.jsonl": write_lines(musique),
        "musique_ans_v1.0_train.jsonl": write_lines(musique),
        "2wiki_dev.parquet": write_parquet(two_wiki * 171),  # the file of evidences starts at row 680
        "2wiki_train.parquet": write_parquet(two_wiki),
        "hotpot_dev_distractor.parquet": write_parquet([hotpot]),
        "hotpot_train_0.parquet": write_parquet([hotpot]),
        "Break-dataset.zip": write_zip(
            {f"Break-dataset/{kind}/dev.csv": write_csv([ROWS["break"]]) for kind in ("QDMR", "QDMR-high-level")}
        ),
        "strategyqa_dataset.zip": write_zip({"strategyqa_train.json": json.dumps([ROWS["strategyqa"]]).encode()}),
        "nq-dev.qa.csv": b"who leads orn\t['Una', 'Una Vard']\n",
        "trivia-dev.qa.csv.gz": gzip.compress(b'"What is ""Orn""?"\t"[\'A hill\', ""Orn\'s hill""]"\n'),
        "web_questions_train.parquet": write_parquet([{"url": "u", "question": "who leads marn", "answers": ["Odo"]}]),
        "qed-dev.jsonlines": write_lines([{**ROWS["qed"], "question_text": "who leads the town of orn"}]),
        "commonsense_qa_train.parquet": write_parquet([{**ROWS["commonsenseqa"], "choices": choices}]),
        "scifact.tar.gz": write_tar({"data/corpus.jsonl": write_lines([{"title": "Orn", "abstract": ["A hill."]}])}),
        "kb.txt": write_lines(["Tin Comet|directed_by|Una Vard"]),
        "1-hop_qa_dev.txt": write_lines(["who directed [Tin Comet]\tUna Vard"]),
        "2-hop_qa_dev.txt": write_lines(["which films share a director with [Tin Comet]\tSalt Road|Ember Lane"]),
        "squad_dev-v2.0.json": articles,
        "policyqa_dev.json": articles,
        "policyqa_test.json": articles,
        "OTT-QA-master.zip": write_zip(
            {"OTT-QA-master/data/traindev_request_tok/Orn_0.json": json.dumps(names).encode()}
        ),
    }


def pin(published: PublishedSet, files: dict[str, bytes]) -> PublishedSet:
    """The set with the sizes and digests of other files."""
    known = {
        name: {"url": download.url, "size": len(files[name]), "sha256": hashlib.sha256(files[name]).hexdigest()}
        for name, download in published.downloads.items()
    }
    return PublishedSet.model_validate({**published.model_dump(), "downloads": known})


def ignore(*_: Any) -> None:
    pass


@pytest.fixture
def public_data(mirror: Mirror, tmp_path: Path) -> Path:
    files = make_published()
    mirror.files = {f"/{name}": content for name, content in files.items()}
    for name, published in load_published().items():
        fetch(name, pin(published, files), tmp_path / "data", mirror.address, ignore)
    return tmp_path / "data"


def read_lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in gzip.open(file)]


def test_a_shipped_configuration_builds_and_another_is_checked_on_what_was_fetched(
    public_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVELATOR_DATA", str(public_data))
    shipped = Path("data_gen/configs/full.yaml").read_text()
    (tmp_path / "full.yaml").write_text(shipped.replace("keep_back: 0.1", "keep_back: 0.0"))  # there are few rows
    built = CliRunner().invoke(
        revelator, ["data", "build", str(tmp_path / "full.yaml"), "--out", str(tmp_path / "set"), "--json"]
    )
    assert built.exit_code == 0, built.output
    manifest = json.loads(built.stdout)
    assert manifest["refused_rows"] == []
    sources = {source for counts in manifest["counts"]["source"].values() for source in counts}
    assert {"musique", "2wiki", "hotpotqa", "strategyqa", "break", "qed", "nq", "webquestions"} <= sources
    checked = CliRunner().invoke(
        evaluate,
        ["evaluation/configs/closed-squad.yaml", "--check", "--run", "naive-5", "--home", str(tmp_path / "home")],
    )
    assert checked.exit_code == 0 and "2 questions of SQuAD closed" in checked.output, checked.output
    assert "everything fits" in checked.output


def test_each_file_has_the_form_that_its_reader_wants(public_data: Path) -> None:
    trivia = next(READERS["triviaqa"](public_data / "triviaqa/triviaqa_8837.jsonl.gz"))
    assert (trivia.question, set(trivia.answers)) == ('What is "Orn"?', {"A hill", "Orn's hill"})
    [step, _] = read_lines(public_data / "musique/musique_decomposed.jsonl.gz")[0]["question_decomposition"]
    assert step["document_id"] == "Tin Comet (film)_0"
    with_paragraphs, without = (
        next(READERS["musique"](public_data / f"musique/musique_{name}.jsonl.gz"))
        for name in ("with_paragraphs", "decomposed")
    )
    assert with_paragraphs.steps == without.steps and with_paragraphs.passages and not without.passages
    assert len(load_rows(public_data / "reading/policyqa.jsonl.gz")) == 4  # of both of its files
    [metaqa] = READERS["metaqa"](public_data / "metaqa/1-hop_dev.jsonl.gz")
    assert metaqa.answers == ("Una Vard",) and metaqa.tree
    assert len(read_lines(public_data / "2wikimultihopqa/2wiki_evidences.jsonl.gz")) == 171 * 4 - 680
    assert read_lines(public_data / "wikipedia/wiki_intros.jsonl.gz")[7]["title"] == "Orn Fell 7"
    assert {"title": "Quill", "text": "A feather to write with."} in read_lines(
        public_data / "corpora/musique_passages.jsonl.gz"
    )
    assert read_lines(public_data / "scifact/scifact_corpus.jsonl.gz") == [{"title": "Orn", "abstract": ["A hill."]}]


def test_every_file_that_a_configuration_reads_is_one_that_can_be_fetched() -> None:
    read = set()
    for file in (
        *Path("data_gen/configs").rglob("*.yaml"),
        *Path("evaluation").rglob("*.yaml"),
        *Path("examples").glob("*.sh"),
    ):
        read |= set(re.findall(r"\$\{?REVELATOR_DATA\}?/([\w./-]+)", file.read_text(encoding="utf-8")))
    made = {f"{name}/{file}" for name, published in load_published().items() for file in published.files}
    assert read - {"held_out.sha256"} == made


def test_each_set_reads_its_own_downloads_over_https() -> None:
    for published in load_published().values():
        assert {file for made in published.files.values() for file in made.of} == set(published.downloads)
        assert all(download.url.startswith("https://") for download in published.downloads.values())


def test_a_fetched_set_is_not_fetched_again_until_a_file_of_it_has_changed(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files["/nq-dev.qa.csv"] = b"who leads orn\t['Una']\n"
    first = fetch("nq", find_set("nq"), tmp_path, mirror.address, ignore)
    assert fetch("nq", find_set("nq"), tmp_path, mirror.address, ignore) == first and len(mirror.asked) == 1
    (tmp_path / "nq" / "nq_train_8757.jsonl.gz").write_bytes(b"")
    assert fetch("nq", find_set("nq"), tmp_path, mirror.address, ignore) == first and len(mirror.asked) == 2


def test_a_digest_that_nobody_knew_is_recorded_and_binds_later_fetches(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files["/nq-dev.qa.csv"] = content = b"who leads orn\t['Una']\n"
    command = ["data", "fetch", "nq", "--from", mirror.address, "--out", str(tmp_path)]
    done = CliRunner().invoke(revelator, command)
    digest = hashlib.sha256(content).hexdigest()
    assert f"digest not known: recorded at the first fetch, {digest}" in done.stderr
    assert f"export REVELATOR_DATA={tmp_path}" in done.stdout and (tmp_path / "held_out.sha256").read_bytes() == b""
    (tmp_path / "nq" / "nq_train_8757.jsonl.gz").unlink()
    mirror.files["/nq-dev.qa.csv"] = b"who leads orn\t['Odo']\n"
    with pytest.raises(ArtifactError, match=f"expected {digest}"):
        fetch("nq", find_set("nq"), tmp_path, mirror.address, ignore)


def test_a_list_of_held_out_questions_stays(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "held_out.sha256").write_text(f"{'0' * 64}  mine\n")
    mirror.files["/nq-dev.qa.csv"] = b"who leads orn\t['Una']\n"
    fetch("nq", find_set("nq"), tmp_path, mirror.address, ignore)
    assert (tmp_path / "held_out.sha256").read_text().endswith("mine\n")


LARGE = b"".join(b"who leads the town of number %d\t['Una %d']\n" % (i, i) for i in range(20_000))


def test_a_cut_connection_is_told_and_the_same_command_continues(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files["/nq-dev.qa.csv"], mirror.cut_at = LARGE, 300_000
    mirror.released.set()
    with pytest.raises(DataError, match=f"cut after [0-9,]+ of {len(LARGE):,} bytes") as caught:
        fetch("nq", find_set("nq"), tmp_path, mirror.address, ignore)
    assert caught.value.hint and "it continues there" in caught.value.hint
    assert not (tmp_path / "nq").exists()
    manifest = fetch("nq", find_set("nq"), tmp_path, mirror.address, ignore)
    assert re.fullmatch(r"bytes=[1-9]\d*-", mirror.asked[-1][1] or "")
    assert manifest["downloads"]["nq-dev.qa.csv"]["sha256"] == hashlib.sha256(LARGE).hexdigest()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["held_out.sha256", "nq"]


def test_a_killed_download_continues_and_one_of_a_file_that_changed_starts_again(
    mirror: Mirror, tmp_path: Path
) -> None:
    def kill_half_way() -> None:
        mirror.cut_at = 300_000
        mirror.was_cut.clear()
        command = [sys.executable, "-m", "revelator", "data", "fetch", "nq", "--from", mirror.address]
        running = subprocess.Popen([*command, "--out", str(tmp_path)], stderr=subprocess.DEVNULL)
        assert mirror.was_cut.wait(PATIENCE)
        part = tmp_path / ".nq.building" / "part-nq-dev.qa.csv"
        while running.poll() is None and not (part.is_file() and part.stat().st_size):
            time.sleep(0.01)
        running.send_signal(signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL

    mirror.files["/nq-dev.qa.csv"] = LARGE
    kill_half_way()
    changed = LARGE.replace(b"Una", b"Odo")
    mirror.files["/nq-dev.qa.csv"] = changed
    manifest = fetch("nq", find_set("nq"), tmp_path, mirror.address, ignore)
    assert (
        mirror.asked[-1][1] and manifest["downloads"]["nq-dev.qa.csv"]["sha256"] == hashlib.sha256(changed).hexdigest()
    )

    (tmp_path / "nq" / "manifest.json").unlink()
    (tmp_path / "nq" / "nq_train_8757.jsonl.gz").unlink()
    kill_half_way()
    manifest = fetch("nq", find_set("nq"), tmp_path, mirror.address, ignore)
    assert (
        mirror.asked[-1][1] and manifest["downloads"]["nq-dev.qa.csv"]["sha256"] == hashlib.sha256(changed).hexdigest()
    )


def test_a_file_that_is_not_the_published_one_is_refused_and_leaves_nothing(mirror: Mirror, tmp_path: Path) -> None:
    published = pin(find_set("nq"), {"nq-dev.qa.csv": b"who leads orn\t['Una']\n"})
    mirror.files["/nq-dev.qa.csv"] = b"who leads orn\t['Odo']\n"
    with pytest.raises(ArtifactError, match=r"not the file that was published: sha256 [0-9a-f]{64} \(.*, expected"):
        fetch("nq", published, tmp_path, mirror.address, ignore)
    assert not (tmp_path / "nq").exists()
    (tmp_path / "nq-dev.qa.csv").write_bytes(b"who leads orn\t['Odo']\n")
    with pytest.raises(ArtifactError, match="is not the file that was published"):
        fetch("nq", published, tmp_path, str(tmp_path), ignore)
    assert (tmp_path / "nq-dev.qa.csv").is_file()  # the user's own


def test_a_complete_file_that_is_smaller_than_the_published_one_is_not_taken_for_a_cut_one(
    mirror: Mirror, tmp_path: Path
) -> None:
    published = pin(find_set("nq"), {"nq-dev.qa.csv": LARGE})
    mirror.files["/nq-dev.qa.csv"] = LARGE[:1000]
    for _ in range(2):
        with pytest.raises(ArtifactError, match=rf"\(1,000 bytes\), expected .*\({len(LARGE):,} bytes\)") as caught:
            fetch("nq", published, tmp_path, mirror.address, ignore)
        assert caught.value.where == f"{mirror.address}/nq-dev.qa.csv"


def test_a_server_that_sends_more_than_was_published_is_cut_off(mirror: Mirror, tmp_path: Path) -> None:
    published = pin(find_set("nq"), {"nq-dev.qa.csv": LARGE[:1000]})
    mirror.files["/nq-dev.qa.csv"] = LARGE
    with pytest.raises(DataError, match="sends more than the 1,000 bytes"):
        fetch("nq", published, tmp_path, mirror.address, ignore)


def test_redirects_lead_to_https_alone_or_stay_on_this_machine(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files["/moved"] = b"who leads orn\t['Una']\n"
    mirror.redirects["/nq-dev.qa.csv"] = "/moved"
    assert fetch("nq", find_set("nq"), tmp_path / "a", mirror.address, ignore)["rows"] == {"nq_train_8757.jsonl.gz": 1}
    for place in ("http://192.0.2.1/file", "file:///etc/passwd"):
        mirror.redirects["/nq-dev.qa.csv"] = place
        with pytest.raises(DataError, match=r"redirects to .*, which is not https"):
            fetch("nq", find_set("nq"), tmp_path / "b", mirror.address, ignore)
    mirror.redirects["/nq-dev.qa.csv"] = "/nq-dev.qa.csv"
    with pytest.raises(DataError, match="redirects more than"):
        fetch("nq", find_set("nq"), tmp_path / "b", mirror.address, ignore)


@pytest.mark.parametrize("serves", [True, False])
def test_what_cannot_be_reached_is_named_with_each_file_to_fetch_by_hand(
    serves: bool, mirror: Mirror, tmp_path: Path
) -> None:
    address = mirror.address if serves else f"http://127.0.0.1:{find_port()}"
    done = CliRunner().invoke(revelator, ["data", "fetch", "reading", "--from", address, "--out", str(tmp_path)])
    error = done.exception
    assert isinstance(error, DataError) and error.exit_status == 1
    assert error.where == f"{address}/squad_dev-v2.0.json" and "cannot be reached" in error.message
    for file, download in find_set("reading").downloads.items():
        assert f"{download.url}\n      as downloads/{file}" in str(error)


def test_files_that_were_fetched_by_hand_are_taken_from_their_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such file"):
        fetch("nq", find_set("nq"), tmp_path, str(tmp_path / "downloads"), ignore)
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / "nq-dev.qa.csv").write_bytes(b"who leads orn\t['Una']\n")
    fetch("nq", find_set("nq"), tmp_path, str(tmp_path / "downloads"), ignore)
    assert read_lines(tmp_path / "nq" / "nq_train_8757.jsonl.gz") == [{"question": "who leads orn", "answer": ["Una"]}]


@pytest.mark.parametrize(
    ("archive", "reason"),
    [
        (write_tar({"../../data/corpus.jsonl": b"{}\n", "/data/corpus.jsonl": b"{}\n"}), "has no file"),
        (write_tar({"secret": b'{"a": 1}\n', "data/corpus.jsonl": "secret"}), "has no file"),
        (write_tar({"data/corpus.jsonl": "/etc/passwd"}), "has no file"),
        (write_zip({"../data/corpus.jsonl": b"{}\n"}), "has no file"),
        (write_zip({"data/corpus.jsonl": b"root:x:0:0"}), "not JSON"),
        (b"no archive", "cannot be read"),
        (write_tar({"data/corpus.jsonl": Random(1).randbytes(9000)})[:4000], "cannot be read"),
    ],
    ids=["names outside", "link inside", "link outside", "zip outside", "link in a zip", "no archive", "cut"],
)
def test_a_hostile_or_damaged_archive_is_refused_and_writes_nothing(
    archive: bytes, reason: str, mirror: Mirror, tmp_path: Path
) -> None:
    mirror.files["/scifact.tar.gz"] = archive
    published, out = pin(find_set("scifact"), {"scifact.tar.gz": archive}), tmp_path / "below" / "data"
    with pytest.raises(DataError, match=reason) as caught:
        fetch("scifact", published, out, mirror.address, ignore)
    assert caught.value.hint and ".scifact.building" in caught.value.hint
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} <= {
        "plan.json", "part-scifact.tar.gz", "state-scifact.tar.gz.json", "unpacked-.jsonl"
    }  # fmt: skip


def test_members_of_any_name_are_unpacked_into_one_file_of_the_working_folder(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(write_zip({"../../../evil.json": b"1", "/evil.json": b"2", "evil.json": b"3"}))
    (tmp_path / "work").mkdir()
    read = [(path, path.read_bytes()) for path in open_members(archive, "*evil.json", tmp_path / "work")]
    assert read == [(tmp_path / "work" / "unpacked-.json", content) for content in (b"1", b"2", b"3")]


def test_another_folder_of_that_name_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "nq").mkdir()
    (tmp_path / "nq" / "mine.txt").touch()
    with pytest.raises(ConfigError, match="not a fetched data set"):
        fetch("nq", find_set("nq"), tmp_path, "http://127.0.0.1:9", ignore)


def test_the_list_says_what_there_is_and_what_was_fetched(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files["/nq-dev.qa.csv"] = b"who leads orn\t['Una']\n"
    fetch("nq", find_set("nq"), tmp_path, mirror.address, ignore)
    shown = CliRunner().invoke(revelator, ["data", "fetch", "--out", str(tmp_path)]).stdout
    assert "nq: Natural Questions (open); CC-BY-SA-3.0; size not known; fetched\n" in shown
    assert "musique: MuSiQue; CC-BY-4.0; 271 MB\n  musique_ans_v1.0_dev.jsonl  30,439,728 bytes, sha256 15fa" in shown
    assert "  nq-dev.qa.csv  size not known, sha256 not known  https://" in shown
    listed = json.loads(CliRunner().invoke(revelator, ["data", "fetch", "--out", str(tmp_path), "--json"]).stdout)
    assert [about["name"] for about in listed if about["fetched"]] == ["nq"]
    for about in listed:
        for file, download in about["downloads"].items():
            digest, size = download["sha256"], download["size"]
            line = next(line for line in shown.splitlines() if line.startswith(f"  {file}  "))
            assert (f"sha256 {digest[:12]}…" if digest else "sha256 not known") in line and download["url"] in line
            assert (f"{size:,} bytes" if size else "size not known") in line
    again = CliRunner().invoke(revelator, ["data", "fetch", "nq", "--out", str(tmp_path), "--json"])
    assert json.loads(again.stdout)["sets"]["nq"] == PUBLISHED.read_manifest(tmp_path / "nq")


def test_an_unknown_set_is_answered_with_those_that_there_are(tmp_path: Path) -> None:
    done = CliRunner().invoke(revelator, ["data", "fetch", "nq", "xyzzy", "--out", str(tmp_path / "data")])
    assert isinstance(done.exception, ConfigError) and "musique" in str(done.exception)
    assert not (tmp_path / "data").exists()
