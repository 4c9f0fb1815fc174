"""Hugging Face's Trainer: a small GPT-2, made from a configuration, on the text of Python's help."""

import math
import pydoc_data.topics
import tempfile
from dataclasses import dataclass

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


@dataclass(frozen=True)
class Config:
    context: int = 64
    """Characters that the model sees at most."""
    layers: int = 2
    batch_per_rank: int = 16
    lr: float = 1e-3
    epochs: int = 1
    seed: int = 0


class ReportEpochs(TrainerCallback):
    def __init__(self, emit):
        self.emit = emit

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        loss = metrics["eval_loss"]
        self.emit({"test_loss": loss, "bits_per_character": loss / math.log(2)})


def train(config: Config, rank, emit):
    text = "".join(pydoc_data.topics.topics.values())[:100_000]
    windows = torch.tensor([min(ord(c), 127) for c in text]).unfold(0, config.context, config.context)
    samples = [{"input_ids": window, "labels": window} for window in windows]
    size = GPT2Config(vocab_size=128, n_positions=config.context, n_embd=64, n_layer=config.layers, n_head=4)
    model = GPT2LMHeadModel(size)
    trainer = Trainer(
        model,
        TrainingArguments(
            output_dir=f"{tempfile.gettempdir()}/hf_trainer",  # nothing is saved
            per_device_train_batch_size=config.batch_per_rank,
            per_device_eval_batch_size=64,
            learning_rate=config.lr,
            num_train_epochs=config.epochs,
            seed=config.seed,
            use_cpu=rank.device == "cpu",
            ddp_backend=rank.backend,  # the ranks of this run have met already; Trainer takes their process group
            eval_strategy="epoch",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=[sample for i, sample in enumerate(samples) if i % 10],
        eval_dataset=samples[::10],
        callbacks=[ReportEpochs(emit)],
    )
    result = trainer.train()
    return {"train_loss": result.training_loss, "parameters": model.num_parameters()}
