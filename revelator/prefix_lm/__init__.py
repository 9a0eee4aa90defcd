"""MiniLM as a language model that reads a prompt in both directions and writes what follows it.

`model` is the class (it imports torch); `spelling` gives its lower-case texts the spelling of what they were written
from. Nothing of this package is imported by `import revelator`.
"""
