"""Knowledge sources, and the atomic operators that run over them (AtomR, sections 3.1 and 3.3)."""
