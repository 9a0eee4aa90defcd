from evaluation.metaqa.benchmark import main
from revelator.cli import run

run(main)
