"""Which version of an adapter is served: scores on pinned rows, the gate that compares them, and the promotion."""
