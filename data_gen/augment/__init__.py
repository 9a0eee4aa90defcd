"""More training questions from those that there are: other names, other words, single questions composed."""
