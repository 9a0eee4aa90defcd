"""The Triton server on this machine: find it, run it, serve the four models in it, call them over gRPC."""
