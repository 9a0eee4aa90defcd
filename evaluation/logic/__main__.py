from evaluation.logic.benchmark import main

main()
