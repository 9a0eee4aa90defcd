"""`revelator plan check`: as processes where the process is what is tested."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from revelator.cli import revelator
from revelator.plans import parse, to_json

COMMAND = [sys.executable, "-c", "from revelator.cli import main; main()"]


def run(*arguments, given=b""):
    return CliRunner().invoke(revelator, arguments, input=given)


def run_process(*arguments, given=b""):
    return subprocess.run([*COMMAND, *arguments], input=given, capture_output=True, check=False)


def test_the_plan_is_drawn_between_the_verdict_and_what_is_wrong():
    refused = run("plan", "check", "A * B")
    assert refused.stdout.startswith("invalid: A * B\n*  in order\n├─ 1  A\n└─ 2  B\nmissing-dependency: ")
    valid = run("plan", "check", "A * B {x}").stdout
    assert valid.startswith("valid: A * B\n*  in order\n") and valid.endswith("\nby number: A * B {1}\n")
    assert "invalid\nunbalanced-parenthesis: line 2: " in run("plan", "check", "A +\nB ) C").stdout


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["A"], 0),
        (["A", "--file", "-"], 2),
        (["A * B"], 1),
        (["A ) B"], 1),
        (["Who is {a?"], 1),
        (["--language", "no", "A"], 2),
    ],
)
def test_check_tells_by_its_exit_status(arguments, status):
    assert run("plan", "check", *arguments).exit_code == status


def test_check_reads_one_expression_a_line_and_writes_one_object_a_line():
    result = run("plan", "check", "-", given=b"A * B {x}\n\nA ) B\n\xff {y}\n" + b"A + " * 900 + b"B")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 1
    assert [row["valid"] for row in rows] == [True, False, False, False, True]
    assert rows[0] == {
        "expression": "A * B {x}",
        "valid": True,
        "canonical": "A * B {x}",
        "letters": "A * B",
        "leaves": 2,
        "diagnostics": [],
        "advice": [],
        "plan": to_json(parse("A * B {x}")),
    }
    assert rows[0]["plan"]["numbered"] == "A * B {1}" and rows[1]["plan"] is None
    assert (rows[1]["canonical"], rows[1]["letters"], rows[1]["leaves"]) == (None, None, 0)
    assert [row["diagnostics"][0]["code"] for row in rows[1:4]] == [
        "empty",
        "unbalanced-parenthesis",
        "erroneous-dependency",
    ]
    assert set(rows[2]["diagnostics"][0]) == {"code", "message", "start", "end", "hint"}
    assert rows[4]["leaves"] == 901


TREE = """{"question": "Which films did the director of Tin Comet direct?", "children": [
  {"question": "Who directed Tin Comet?", "relate": {"head": "Tin Comet", "to": "directed by"}},
  {"question": "Which films did [1] direct?", "relate": {"head": "[%d]", "to": "directed by"}}
]}
"""


def test_trees_and_queries_are_drawn_and_checked_by_their_language(tmp_path):
    tree, wrong = tmp_path / "tree.json", tmp_path / "wrong.json"
    tree.write_text(TREE % 1)
    wrong.write_text(TREE % 7)
    drawn = run("plan", "check", "--language", "art", "--file", str(tree)).stdout
    assert '├─ 1 Who directed Tin Comet?  Relate("Tin Comet", "directed by")' in drawn
    assert run("plan", "check", "--language", "art", "--file", str(tree)).exit_code == 0
    refused = run("plan", "check", "--language", "art", "--file", str(wrong))
    assert refused.exit_code == 1
    assert "reference: line 3: children[1].relate.head: node 2 names [7]" in refused.stdout
    assert "^^^^^" in refused.stdout
    (row,) = map(
        json.loads, run("plan", "check", "-", "--language", "logic", given=b'"a" AND NOT "a"').stdout.splitlines()
    )
    assert [found["code"] for found in row["diagnostics"]] == ["contradiction"]
    assert row["plan"] is None
    drawn = run("plan", "check", "--language", "logic", '"a" AND NOT "b"').stdout
    assert drawn == 'valid\nAND\n├─ "a"\n└─ NOT\n   └─ "b"\n'


def test_a_reader_that_goes_away_ends_check_quietly():
    process = subprocess.Popen(
        [*COMMAND, "plan", "check", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdin.write(b"A\n")
    process.stdin.flush()
    assert process.stdout.readline()
    process.stdout.close()
    process.stdin.write(b"A\n" * 100)
    process.stdin.close()
    assert process.wait() == 1
    assert process.stderr.read() == b""


def test_an_argument_and_standard_input_read_the_same_bytes_alike():
    broken = b"\xff * b {x}"
    for options, source in ((["--json"], ["-"]), ([], ["--file", "-"])):
        printed = run_process("plan", "check", *options, broken).stdout
        assert printed == run_process("plan", "check", *options, *source, given=broken).stdout != b""


def test_the_tree_shows_control_characters_as_dots():
    text = "Who \x1b[31mwrote\x07 it?"
    assert run("plan", "check", text).stdout == "valid: A\n1  Who ·[31mwrote· it?\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("arguments", [["plan", "check", "A?"], ["plan", "check", "-"]])
def test_a_full_disk_behind_standard_output_is_one_error_and_no_verdict(arguments):
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run([*COMMAND, *arguments], input=b"A?\n", stdout=full, stderr=subprocess.PIPE, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith(b"error: No space left on device")
    assert b"Traceback" not in result.stderr
