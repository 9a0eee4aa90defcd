"""More training questions from those that there are: under other names, in other words."""
