"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click
from click.testing import CliRunner

from revelator.options import PATH


def test_an_empty_path_is_not_the_folder_that_one_is_in() -> None:
    @click.command()
    @click.argument("path", type=PATH)
    def show(path: Path) -> None:
        click.echo(repr(path))

    refused, taken = (CliRunner().invoke(show, [text]) for text in ("", "."))
    assert refused.exit_code == 2 and "the path is empty" in refused.output
    assert taken.output.strip() == repr(Path())
