"""What answers: revelator, retriever and generator, in this process, behind Triton or behind an endpoint."""
