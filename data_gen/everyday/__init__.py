"""Questions, and passages that answer some, in the words of work and daily life."""
