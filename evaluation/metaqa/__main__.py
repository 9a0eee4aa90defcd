import click

from evaluation.metaqa.benchmark import main
from revelator.errors import RevelatorError

try:
    main()
except RevelatorError as error:
    click.echo(f"error: {error}", err=True)
    raise SystemExit(error.exit_status) from error
