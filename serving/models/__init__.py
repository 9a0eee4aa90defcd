"""Models in this process: a base with an adapter on ONNX Runtime or transformers, and the revelator over it."""
