from evaluation.logic.benchmark import main
from revelator.cli import run

run(main)
