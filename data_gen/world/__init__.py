"""A synthetic world: a knowledge graph, documents that state it, and questions with gold plans and answers."""
