"""Chooses the sentence of a passage that a question is most likely about.

A small model judges a passage as a whole, and does not see that one line of a list answers. The executor therefore
judges that line as well, and takes the higher probability. Ranking a document by its best part is MaxP (Dai and Callan
2019, arXiv 1905.09217). The model judged 4.9 % of MuSiQue's gold passages irrelevant as wholes and 2.0 % with
sentences, of SQuAD's 14.3 and 3.6 % (n = 107 and 56 questions; words of titles still counted).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from revelator.sentences import split_sentences
from revelator.trace import Passage
from serving.retrieval import extract_query_terms, extract_terms


def choose_sentences(question: str, passages: Sequence[Passage]) -> list[str]:
    """Returns for each passage the first sentence that holds most of the question's words, or "" if the passage is one
    sentence or holds none of them.

    A word counts less the more passages hold it. A word of the title does not count, since the title is read together
    with the sentence.
    """
    split = [split_sentences(passage.text) for passage in passages]
    terms = [[set(extract_terms(sentence)) for sentence in sentences] for sentences in split]
    held = Counter(term for own in terms for term in set().union(*own))
    asked = {term: 1 / held[term] for term in extract_query_terms(question) if term in held}
    chosen = []
    for passage, sentences, own in zip(passages, split, terms, strict=True):
        wanted = asked.keys() - extract_terms(passage.title)
        scores = [math.fsum(asked[term] for term in words & wanted) for words in own]  # exact in any order of a set
        best = max(scores, default=0.0)
        chosen.append(sentences[scores.index(best)] if best and len(sentences) > 1 else "")
    return chosen
