"""How well an adapter writes logical queries."""
