"""Commands of the serving stage, one module each."""
