"""HTTP: what stands before every route, and the gateway that puts questions to the executor."""
