"""A runner with hooks around iterations and a model whose train_step takes the data and a wrapped optimizer."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, default_collate
from truth import step


class OptimWrapper:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def update_params(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class Preprocessor(nn.Module):
    def forward(self, data):
        return {"inputs": (data["inputs"].float() - 127) / 60, "data_samples": data["data_samples"]}


class Recognizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.data_preprocessor = Preprocessor()
        self.head = nn.Linear(3 * 6 * 6, 7)

    def forward(self, inputs, data_samples):
        time.sleep(0.005)
        return {"loss": nn.functional.cross_entropy(self.head(inputs.flatten(1)), data_samples)}

    def train_step(self, data, optim_wrapper):
        losses = self(**self.data_preprocessor(data))
        optim_wrapper.update_params(sum(losses.values()))
        return losses


class CountHook:
    def before_train_iter(self, runner, data_batch):
        runner.began = time.perf_counter()

    def after_train_iter(self, runner, data_batch, outputs):
        step(len(data_batch["data_samples"]))


class Runner:
    def train(self, model, optim_wrapper, loader, hooks, epochs):
        for _epoch in range(epochs):
            for data_batch in loader:
                for hook in hooks:
                    hook.before_train_iter(self, data_batch)
                outputs = model.train_step(data_batch, optim_wrapper)
                for hook in hooks:
                    hook.after_train_iter(self, data_batch, outputs)


pictures = [{"inputs": torch.randint(256, (3, 6, 6), dtype=torch.uint8), "data_samples": i % 7} for i in range(100)]
loader = DataLoader(pictures, batch_size=10, shuffle=True, collate_fn=default_collate)
model = Recognizer()
wrapper = OptimWrapper(torch.optim.SGD(model.parameters(), lr=0.01))
Runner().train(model, wrapper, loader, [CountHook()], epochs=100)
