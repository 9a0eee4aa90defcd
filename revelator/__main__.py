"""`python -m revelator`: the command, where its script is not on the path."""

from revelator.cli import main

main()
