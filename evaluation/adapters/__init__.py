"""What an adapter answers to the rows of a set, and its scores: `revelator grade` and `revelator score`."""
