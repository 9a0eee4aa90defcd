"""The Triton server of a home folder: find and run it, lay out its model repository, say who may reach it."""
