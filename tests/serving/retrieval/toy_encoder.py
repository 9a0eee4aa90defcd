"""A sentence-transformers model of a few kilobytes: a text is the mean of random vectors of its words, so that texts
which share words are near. Words that it does not know share one vector. A corpus of its words."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np

WORDS = (
    "a and about red green blue cat dog bird fish tree house river sea city bridge tower lamp rain snow wind fire iron"
    " gold silver copper king queen child film novel song opera choir music director writer painter town inhabitants"
)


def write_encoder(folder: Path, seed: int = 0) -> Path:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    vocabulary = {"[UNK]": 0} | {word: i for i, word in enumerate(dict.fromkeys(WORDS.split()), start=1)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    weights = np.random.default_rng(seed).normal(size=(len(vocabulary), 32)).astype(np.float32)
    weights[0] *= 0.1
    embedding = StaticEmbedding(tokenizer, embedding_weights=weights)
    SentenceTransformer(modules=[embedding], device="cpu").save_pretrained(str(folder))
    return folder


def write_corpus(path: Path, count: int, seed: int = 0) -> Path:
    """Passages of 4 to 12 known words; their ids have marks that an expression of Milvus must escape."""
    chance, words = random.Random(seed), WORDS.split()[2:]
    rows = [
        {
            "id": f'{path.stem} "{n}" \\',
            "title": chance.choice(words),
            "text": " ".join(chance.choices(words, k=n % 9 + 4)),
        }
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
