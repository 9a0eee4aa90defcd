"""How the embedded reader reads: sentences and tokens, questions, relation words, candidate answers."""
