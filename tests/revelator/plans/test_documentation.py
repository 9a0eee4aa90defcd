"""The examples of docs/plans.md are true."""

import doctest
import re
from pathlib import Path

import pytest

from revelator import plans

PAGE = Path(__file__).parents[3] / "docs" / "plans.md"
ROWS = re.findall(r"^\| `` ?(.+?) ?`` \| `` ?(.+?) ?`` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("text", "meaning"), ROWS)
def test_each_row_of_the_tables_is_true(text, meaning):
    try:
        plan = plans.parse(text)
    except plans.ExpressionError as error:
        assert meaning == error.code
    else:
        found = plans.check(plan)
        assert meaning in ([repr(leaf.text)[1:-1] for leaf in plans.list_leaves(plan)], plans.to_letters(plan)) or (
            [meaning] in ([d.code for d in found], [leaf.text for leaf in plans.list_leaves(plan)])
        )


def test_there_are_rows_and_sessions():
    assert len(ROWS) >= 15


def test_each_session_prints_what_the_page_shows():
    result = doctest.testfile(str(PAGE), module_relative=False, globs=vars(plans).copy(), verbose=False)
    assert result.attempted >= 3
    assert result.failed == 0
