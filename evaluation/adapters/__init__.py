"""What an adapter answers to the rows of a set, and its scores: `revelator model grade` and `revelator model score`."""
