"""Triton model `executor`: questions in, answers and traces out, many at a time."""

from serving.triton.inside.executor import TritonPythonModel as TritonPythonModel
