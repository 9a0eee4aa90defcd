"""A tiny random base and a tiny invented instruction set, as the real ones lie on disk."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from revelator import rows
from revelator.artifact import digest_base, make_lasting_name, write_manifest
from revelator.files import write_json
from revelator.fingerprints import Fingerprints
from revelator.folders import MANIFEST
from revelator.plans import logic, parse
from revelator.plans.art import Art
from revelator.plans.language import grammar_hash
from revelator.plans.operators import Relate
from revelator.rows import COLUMNS, Row
from revelator.tasks import (
    TASKS,
    QuestionInput,
    ReadAnswer,
    ReadInput,
    RelevanceInput,
    SelectInput,
    Step,
    StepsInput,
)
from tests.causal import train_tokenizer

PEOPLE = ("Ama Oyelaran", "Tobias Lindqvist", "Mei Watanabe", "Rosa Quispe", "Ivo Marek", "Lena Haddad")
PLACES = ("Port Velm", "Sarnath", "Little Quay", "Obra Vale", "North Tessel", "Kaldur")


def toy_row(**values: str) -> Row:
    """A row of these values; the others are empty."""
    return Row(**dict.fromkeys(COLUMNS, "") | values)


def toy_rows(split: str, count: int) -> list[Row]:
    """`count` invented questions, one row of each task for each."""
    random = Random(split)
    made = []
    for number in range(count):
        person, place = random.choice(PEOPLE), random.choice(PLACES)
        for task, value, gold in _examples(person, place, random.random() < 0.5):
            is_plain = isinstance(gold, str | list)
            plain = gold if is_plain else TASKS[task].write_completion(gold).strip()
            made.append(
                toy_row(
                    id=f"{split}-{number}-{task}",
                    split=split,
                    task=task,
                    source="toy",
                    licence="CC0-1.0",
                    teacher="annotation",
                    group=f"{split}-{number}",
                    question=value.question,
                    prompt=TASKS[task].render(value),
                    completion=TASKS[task].write_completion(gold),
                    prompt_hash=TASKS[task].prompt_hash,
                    label=gold if TASKS[task].labels else "",
                    shape="A * B" if task == "translate_bnf" else "",
                    gold=json.dumps(plain),
                    entities=json.dumps([place]) if task.startswith("translate") else "",
                )
            )
    return made


def _examples(person: str, place: str, known: bool):
    question = f"Where was the mayor of {place} born?"
    plan = parse(f"Who is the mayor of {place}? * Where was {{mayor}} born?")
    steps = (Step(f"Who is the mayor of {place}?", (person,)),) if known else ()
    yield "translate_bnf", QuestionInput(question), plan
    yield "translate_logic", QuestionInput(f"papers on {place} but not {person}"), _query(place, person)
    yield "translate_art", QuestionInput(question), _tree(question, place)
    yield (
        "route",
        QuestionInput(question if known else f"Who is the mayor of {place}?"),
        "complex" if known else "single",
    )
    yield (
        "decompose",
        QuestionInput(f"When was {person} born and where is {place}?"),
        [f"When was {person} born?", f"Where is {place}?"],
    )
    yield (
        "refine",
        StepsInput(question, steps),
        f"Where was {person} born?" if known else f"Who is the mayor of {place}?",
    )
    message = "Where was she born?" if known else f"Who is the mayor of {place}?"
    yield "rewrite", StepsInput(message, steps), f"Where was {person} born?" if known else message
    yield "end", StepsInput(f"Who is the mayor of {place}?", steps), "yes" if known else "no"
    title = place if known else person
    yield (
        "relevance",
        RelevanceInput(f"Who is the mayor of {place}?", title, f"{title} is well known."),
        "yes" if known else "no",
    )
    about = "towns and who rules them" if known else "films"
    yield "select", SelectInput(f"Who is the mayor of {place}?", "base", "text", about), "yes" if known else "no"

    passages = ((place, f"{person} is the mayor."), (person, "Nobody knows more."))
    answer = ReadAnswer((person,)) if known else ReadAnswer(verdict="unanswerable")
    yield "read", ReadInput(f"Who is the mayor of {place}?", passages if known else passages[1:]), answer


def _tree(question: str, place: str) -> Art:
    mayor = Art(f"Who is the mayor of {place}?", Relate(place, "mayor"))
    return Art(question, children=(mayor, Art("Where was [1] born?", Relate("[1]", "birthplace"))))


def _query(wanted: str, unwanted: str) -> logic.Query:
    return logic.And((logic.Term(wanted), logic.Not(logic.Term(unwanted))))


def write_set(
    folder: Path, *, train: int = 60, dev: int = 12, hashed: str | None = None, seen: Fingerprints | None = None
) -> Path:
    """An instruction set in the published layout; `hashed` replaces its prompt hash, `seen` are its fingerprints."""
    with rows.write_set(folder, {"grammar_hash": grammar_hash()}) as writer:
        for split, count in (("train", train), ("dev", dev), ("test", dev)):
            writer.add(rows.make_table(toy_rows(split, count)))
        writer.fingerprints = seen
    if hashed:
        manifest = rows.SET.read_manifest(folder)
        write_json(folder / MANIFEST, manifest | {"prompt_hash": hashed})
    return folder


def write_base(folder: Path, *, seed: int = 0, words: tuple[str, ...] | None = None) -> Path:
    """A random Llama of width 64 and two layers, with a tokenizer learnt from the toy rows."""
    torch.manual_seed(seed)
    texts = [row.prompt + row.completion for row in toy_rows("train", 20)]
    labels = words or tuple(sorted({label for task in TASKS.values() for label in task.labels or ()}))
    tokenizer = train_tokenizer(texts, words=labels, size=700)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.15,  # with 0.02 the frozen output layer could not tell tokens apart
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_adapter(folder: Path, base: Path, *, seed: int = 0, data_digest: str = "", run_id: str = "") -> Path:
    """An adapter with random weights and its manifest, as training leaves it."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    settings = LoraConfig(
        r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM"
    )
    get_peft_model(model, settings).save_pretrained(folder)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    write_manifest(
        folder,
        base_name=make_lasting_name(str(base)),
        base_digest=digest_base(base),
        data_digest=data_digest,
        run_id=run_id,
    )
    return folder
