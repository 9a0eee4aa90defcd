"""The executor as a service of its own: one process that answers over gRPC and HTTP."""
