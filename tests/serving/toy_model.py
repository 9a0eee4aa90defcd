"""A base and adapters that any test of serving can afford: a moment to make, a moment to load, nothing learnt."""

from __future__ import annotations

from pathlib import Path

PASSAGES = [
    ("Lantern Row", "Lantern Row is a 1987 film directed by Ines Calloway. It was shot in Tessaly."),
    ("Ines Calloway", "Ines Calloway is a film director who was born in Port Velm."),
    ("Port Velm", "Port Velm is a harbour town in Orland. It was founded in 1402."),
    ("The Glass Orchard", "The Glass Orchard is a 1991 film directed by Tobias Renn."),
    ("Tobias Renn", "Tobias Renn is a film director who was born in Sarnath."),
    ("Sarnath", "Sarnath is a town in Orland. It was founded in 1388."),
]


def write_base(folder: Path) -> Path:
    """A random Llama of two layers with a tokenizer of its own: right in form, wrong in all it says."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from revelator.tasks import TASKS
    from tests.causal import train_tokenizer

    torch.manual_seed(5)
    labels = sorted({label for task in TASKS.values() for label in task.labels or ()})
    tokenizer = train_tokenizer([text for _, text in PASSAGES], words=labels, size=400)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_adapter(folder: Path, base: Path, seed: int, rank: int = 2, share: float = 1.0) -> Path:
    """A random LoRA adapter of `base`, with its manifest; a small `share` of its weights leaves the base nearly as it
    is."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from revelator.artifact import digest_base, write_manifest

    torch.manual_seed(seed)
    lora = LoraConfig(r=rank, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), lora)
    for name, weights in model.named_parameters():
        if "lora_B" in name:
            weights.data *= share
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    write_manifest(folder, base_name=str(base), base_digest=digest_base(base), data_digest=f"{seed}", run_id="")
    return folder
