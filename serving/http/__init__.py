"""HTTP: what stands before every route, bounds of bodies, and KServe's protocol."""
