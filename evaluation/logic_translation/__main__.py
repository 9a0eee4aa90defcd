from evaluation.logic_translation.translation import main

main()
