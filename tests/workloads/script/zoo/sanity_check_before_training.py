"""A trainer class that tests two batches before the training as a check, and all after each epoch."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step, testing


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 12))

    def forward(self, x):
        time.sleep(0.004)
        return self.net(x)

    def training_step(self, batch, batch_idx):
        return nn.functional.mse_loss(self(batch[0]), batch[0])

    def validation_step(self, batch, batch_idx):
        return nn.functional.mse_loss(self(batch[0]), batch[0])


class Trainer:
    def fit(self, module, train_loader, valid_loader):
        optimizer = torch.optim.Adam(module.parameters())
        self.validate(module, valid_loader, limit=2)
        for _epoch in range(100):
            for batch_idx, batch in enumerate(train_loader):

                def closure(batch=batch, batch_idx=batch_idx):
                    optimizer.zero_grad()
                    loss = module.training_step(batch, batch_idx)
                    loss.backward()
                    return loss

                optimizer.step(closure)
                step(len(batch[0]))
            self.validate(module, valid_loader, limit=None)

    def validate(self, module, loader, limit):
        with testing(), torch.no_grad():
            module.eval()
            for batch_idx, batch in enumerate(loader):
                if batch_idx == limit:
                    break
                module.validation_step(batch, batch_idx)
            module.train()


Trainer().fit(
    Module(),
    DataLoader(TensorDataset(torch.randn(180, 12)), batch_size=18, shuffle=True),
    DataLoader(TensorDataset(torch.randn(100, 12)), batch_size=25),
)
