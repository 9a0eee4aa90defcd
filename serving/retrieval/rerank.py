"""A second look at the best passages: a cross-encoder reads query and passage together. By folder or Hub id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from revelator.errors import ArtifactError
from revelator.trace import Passage
from serving.retrieval.encoder import model_folder, sentence_transformers

BATCH = 16


class Reranker:
    """A cross-encoder that is open. Weights come from safetensors alone, and no code of the model is run."""

    def __init__(self, name: str, *, max_tokens: int = 512) -> None:
        folder = model_folder(name)
        try:
            self._model = sentence_transformers().CrossEncoder(
                str(folder),
                num_labels=1,
                max_length=max_tokens,
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},
            )
        except (OSError, ValueError, ImportError, KeyError, AttributeError) as error:
            first = str(error).partition("\n")[0]
            raise ArtifactError(f"not a cross-encoder: {first}", where=str(folder)) from error

    def rerank(self, query: str, passages: Sequence[Passage], k: int) -> list[Passage]:
        """The `k` best by the cross-encoder's own score, which takes the place of the passage's."""
        if not passages:
            return []
        pairs = [(query, f"{passage.title}\n{passage.text}") for passage in passages]
        scores = self._model.predict(pairs, batch_size=BATCH, show_progress_bar=False)
        ranked = sorted(zip(scores.tolist(), passages, strict=True), key=lambda pair: -pair[0])
        return [replace(passage, score=score) for score, passage in ranked[:k]]
