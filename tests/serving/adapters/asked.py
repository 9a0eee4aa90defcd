"""What the adapters ask, and what the documents say of it."""

QUESTION = "What is the extension of the head of the Flume Laboratory?"
ANSWER = "4115"
UNKNOWN = "Who is the king of Vexland?"
