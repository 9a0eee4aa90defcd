"""The tree and the sources of docs/knowledge.md are true."""

import re
from pathlib import Path

from revelator.plans.art import check, parse
from serving.knowledge.config import read_sources

PAGE = (Path(__file__).parents[3] / "docs" / "knowledge.md").read_text(encoding="utf-8")


def block(kind: str) -> str:
    found = re.search(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


def test_the_tree_on_the_page_can_be_run() -> None:
    assert check(parse(block("json"))) == ()


def test_the_sources_on_the_page_are_read(tmp_path: Path) -> None:
    (tmp_path / "sources.yaml").write_text(block("yaml"))
    assert [source.kind for source in read_sources(tmp_path / "sources.yaml").sources] == [
        "text",
        "graph",
        "sparql",
        "web",
    ]
