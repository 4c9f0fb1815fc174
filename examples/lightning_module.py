"""Lightning: a LightningModule that learns scikit-learn's digits."""

from dataclasses import dataclass

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass(frozen=True)
class Config:
    width: int = 64
    batch_per_rank: int = 32
    lr: float = 0.1
    epochs: int = 5


class Digits(lightning.LightningModule):
    def __init__(self, config, emit):
        super().__init__()
        self.config, self.emit = config, emit
        self.net = nn.Sequential(nn.Linear(64, config.width), nn.ReLU(), nn.Linear(config.width, 10))

    def training_step(self, batch):
        images, labels = batch
        return nn.functional.cross_entropy(self.net(images), labels)

    def validation_step(self, batch):
        images, labels = batch
        logits = self.net(images)
        self.log("loss", nn.functional.cross_entropy(logits, labels), sync_dist=True)
        self.log("accuracy", (logits.argmax(1) == labels).float().mean(), sync_dist=True)

    def on_validation_epoch_end(self):
        metrics = self.trainer.callback_metrics
        self.emit({"test_loss": metrics["loss"], "test_accuracy": metrics["accuracy"]})

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.config.lr)


def train(config: Config, rank, emit):
    digits = load_digits()
    images, labels = torch.tensor(digits.images).float().flatten(1) / 16, torch.tensor(digits.target)
    is_test = torch.arange(len(labels)) % 5 == 4
    data = TensorDataset(images[~is_test], labels[~is_test])
    test = TensorDataset(images[is_test], labels[is_test])
    on_gpu = rank.device != "cpu"
    trainer = lightning.Trainer(
        accelerator="gpu" if on_gpu else "cpu",
        # Lightning takes the rank from torchrun's environment, which each run has, and the process group as it is.
        devices=[rank.local_rank] if on_gpu and rank.world_size == 1 else rank.local_world_size,
        num_nodes=rank.world_size // rank.local_world_size,
        strategy=DDPStrategy(process_group_backend=rank.backend) if rank.world_size > 1 else "auto",
        max_epochs=config.epochs,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Digits(config, emit)
    trainer.fit(model, DataLoader(data, config.batch_per_rank, shuffle=True), DataLoader(test, 64))
    return {"parameters": sum(p.numel() for p in model.parameters())}
