"""Triton model `executor_stream`: questions in, the events of their traces out, each when it happens."""

from serving.triton.inside.executor import TritonPythonModel as TritonPythonModel
