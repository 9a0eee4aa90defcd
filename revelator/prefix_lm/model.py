"""A prefix language model over MiniLM, in the shape in which transformers, PEFT and TRL take any causal model.

UniLM's sequence-to-sequence mask (Dong et al. 2019, section 2.3): tokens of the prompt see the whole prompt, tokens of
the completion see the prompt, themselves and what stands before them. A row's first boundary token ends its prompt and
belongs to it, so its logits are those of the first written token. Prompts have token type 0, completions type 1.

    row          [PAD] [CLS] who wrote it ? [SEP] ada quill [SEP]
    token type     -     0    0   0   0 0   0     1    1     1
    logits of                               ada   quill [SEP]

A cache holds the keys and values of a whole prompt and of what was written after it: a pass over a cache reads written
tokens alone. The word embeddings are MiniLM's, frozen, and tied to the output through one learned map and a layer norm.
A model that was made from MiniLM is saved without word and position embeddings: they come from MiniLM again when it is
loaded, once its digest is right.

Importing this module registers the class with transformers' AutoConfig and AutoModelForCausalLM.
"""

from __future__ import annotations

from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    BertConfig,
    BertModel,
    GenerationMixin,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.cache_utils import Cache
from transformers.modeling_outputs import CausalLMOutputWithPast

from revelator.errors import ArtifactError
from revelator.minilm import DIGESTS, TOKENIZER, WEIGHTS, fetch_minilm

SHARED = ("embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight")  # MiniLM's, frozen
ENCODER = "encoder"


class PrefixLMConfig(BertConfig):
    """BERT's, with the token that ends a prompt, and the sha256 of the MiniLM that word and position embeddings are
    taken from when the model is loaded (empty: they are saved with the others)."""

    model_type = "revelator_prefix_lm"

    boundary_token_id: int = 102
    embeddings_from: str = ""
    is_decoder: bool = True  # BertModel keeps keys and values
    tie_word_embeddings: bool = False  # by TiedOutput, not by transformers


class TiedOutput(nn.Module):
    """The output layer: products with word embeddings that belong to another module, so that they are saved once, or,
    where they are MiniLM's, not at all."""

    def __init__(self, embeddings: nn.Embedding) -> None:
        super().__init__()
        self.__dict__["embeddings"] = embeddings  # no module of this one

    @property
    def weight(self) -> torch.Tensor:
        return self.__dict__["embeddings"].weight

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(hidden, self.weight)


class PrefixLMForCausalLM(PreTrainedModel, GenerationMixin):
    """The encoder, the map to the embeddings' space, and the output layer, which is tied to the word embeddings."""

    config_class = PrefixLMConfig
    base_model_prefix = ENCODER
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["BertEmbeddings", "BertLayer"]  # noqa: RUF012

    def __init__(self, config: PrefixLMConfig) -> None:
        super().__init__(config)
        self.encoder = BertModel(config, add_pooling_layer=False)
        self.map = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.lm_head = TiedOutput(self.encoder.embeddings.word_embeddings)
        if config.embeddings_from:
            self._keys_to_ignore_on_save = {f"{ENCODER}.{name}" for name in SHARED}
            self._keys_to_ignore_on_load_missing = self._keys_to_ignore_on_save
        self.post_init()
        for name in SHARED:
            self.encoder.get_parameter(name).requires_grad_(False)

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.get_input_embeddings()

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    @classmethod
    def from_pretrained(cls, *arguments: Any, **options: Any) -> Any:
        """As transformers', with MiniLM's embeddings. Raises ArtifactError where MiniLM cannot be had, or is another
        than the model was made from."""
        loaded = super().from_pretrained(*arguments, **options)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        if model.config.embeddings_from:
            if model.config.embeddings_from != DIGESTS[WEIGHTS]:
                made_from, known = model.config.embeddings_from[:12], DIGESTS[WEIGHTS][:12]
                raise ArtifactError(
                    f"made from MiniLM of sha256 {made_from}…, and {known}… is the one that is known",
                    where=str(model.config.name_or_path),
                    hint="train it again, or use the release that it was trained with",
                )
            published = load_file(fetch_minilm() / WEIGHTS)
            with torch.no_grad():
                for name in SHARED:
                    model.encoder.get_parameter(name).copy_(published[name]).requires_grad_(False)
        return loaded

    def encode(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
    ) -> Any:
        """BertModel's output for tokens (rows, tokens); with keys and values of earlier ones these are all written.

        `attention_mask` (rows, earlier tokens and these) is 0 at padding, on either side. Raises ValueError for a mask
        of another shape: this model makes its own.
        """
        past = past_key_values.get_seq_length() if past_key_values is not None else 0
        rows, tokens = input_ids.shape
        if attention_mask is None:
            attention_mask = input_ids.new_ones(rows, past + tokens)
        if attention_mask.shape != (rows, past + tokens):
            raise ValueError(f"an attention mask of {rows} rows and {past + tokens} tokens is needed")
        kept = attention_mask.bool()
        if position_ids is None:
            position_ids = (kept.cumsum(-1) - 1).clamp(min=0)[:, past:]
        written = torch.ones_like(input_ids) if past else self._find_written(input_ids, kept)
        mask = self._mask(kept, written, past)
        return self.encoder(
            input_ids=input_ids,
            attention_mask=mask,
            token_type_ids=written.long(),
            position_ids=position_ids,
            past_key_values=past_key_values,
            use_cache=use_cache,
        )

    def project(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits (…, vocabulary) of hidden states (…, width)."""
        return self.lm_head(self.norm(self.map(hidden)))

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        **options: Any,
    ) -> CausalLMOutputWithPast:
        """As of any causal language model of transformers: `encode`, then logits, and the loss of `labels`."""
        encoded = self.encode(input_ids, attention_mask, position_ids, past_key_values, use_cache)
        wanted = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.project(encoded.last_hidden_state[:, wanted])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, vocab_size=self.config.vocab_size, **options)
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=encoded.past_key_values)

    def _find_written(self, input_ids: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        """Which tokens stand behind the first boundary of their row."""
        boundary = ((input_ids == self.config.boundary_token_id) & kept).long()
        return (boundary.cumsum(-1) - boundary) > 0

    def _mask(self, kept: torch.Tensor, written: torch.Tensor, past: int) -> torch.Tensor:
        """What is added to attention scores, (rows, 1, tokens, earlier tokens and these): 0 where a token may look."""
        tokens, seen = written.shape[1], kept.shape[1]
        earlier = torch.ones(tokens, seen, dtype=torch.bool, device=kept.device).tril(past)
        sees = earlier[None]
        if not past:
            sees = sees | ~written.bool()[:, None]
        sees = (sees & kept[:, None])[:, None]
        dtype = self.dtype
        return torch.zeros(sees.shape, dtype=dtype, device=kept.device).masked_fill_(~sees, torch.finfo(dtype).min)


AutoConfig.register(PrefixLMConfig.model_type, PrefixLMConfig)
AutoModelForCausalLM.register(PrefixLMConfig, PrefixLMForCausalLM)


def start_from_minilm(tokenizer: PreTrainedTokenizerFast) -> PrefixLMForCausalLM:
    """MiniLM as a prefix language model that has learnt nothing yet; the tokenizer is its own. Raises ArtifactError."""
    minilm = fetch_minilm()
    config = PrefixLMConfig.from_pretrained(
        minilm,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        boundary_token_id=tokenizer.sep_token_id,
        embeddings_from=DIGESTS[WEIGHTS],
    )
    model = PrefixLMForCausalLM(config)
    published = load_file(minilm / WEIGHTS)
    with torch.no_grad():
        for name, value in model.encoder.named_parameters():
            value.copy_(published[name])
        nn.init.eye_(model.map.weight)
    return model


def load_minilm_tokenizer() -> PreTrainedTokenizerFast:
    """MiniLM's word pieces. A prompt begins with [CLS] and ends with [SEP], the boundary; [SEP] ends a completion, too.

    A text that spells a special token has none: what a question says cannot end its prompt.
    """
    pieces = Tokenizer.from_file(str(fetch_minilm() / TOKENIZER))
    pieces.no_truncation()  # the published file cuts at 128 tokens, and pads to as many
    pieces.no_padding()
    return PreTrainedTokenizerFast(
        tokenizer_object=pieces,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        eos_token="[SEP]",
        padding_side="left",
        model_input_names=["input_ids", "attention_mask"],
        split_special_tokens=True,
    )
