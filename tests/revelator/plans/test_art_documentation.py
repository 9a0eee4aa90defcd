"""The tree of docs/plans.md and the sources of docs/your-data.md are true."""

import re
from pathlib import Path

from revelator.plans.art import check, parse
from serving.knowledge.config import read_sources

DOCS = Path(__file__).parents[3] / "docs"


def block(page: str, kind: str, begins: str = "") -> str:
    found = re.search(rf"```{kind}\n({begins}.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return found[1]


def test_the_tree_on_the_page_can_be_run() -> None:
    assert check(parse(block("plans.md", "json"))) == ()


def test_the_sources_on_the_page_are_read(tmp_path: Path) -> None:
    (tmp_path / "sources.yaml").write_text(block("your-data.md", "yaml", begins="sources:"))
    assert [source.kind for source in read_sources(tmp_path / "sources.yaml").sources] == [
        "text",
        "graph",
        "sparql",
        "web",
    ]
