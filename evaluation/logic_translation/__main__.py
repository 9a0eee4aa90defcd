from evaluation.logic_translation.translation import main
from revelator.cli import run

run(main)
