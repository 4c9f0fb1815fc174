"""One validation batch, read before the training, is tested after every 4 steps without gradients or eval()."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split
from truth import step


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(20, 5), nn.Linear(5, 20)

    def forward(self, x):
        time.sleep(0.004)
        return self.decoder(self.encoder(x).relu())


train, valid = random_split(TensorDataset(torch.randn(520, 20)), (480, 40))
(fixed,) = next(iter(DataLoader(valid, batch_size=40)))
model = Autoencoder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
iteration = 0
for _epoch in range(100):
    for (x,) in DataLoader(train, batch_size=16, shuffle=True):
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        iteration += 1
        step(len(x))
        if iteration % 4 == 0:
            with torch.no_grad():  # on a batch in memory: no test beyond doubt
                print(nn.functional.mse_loss(model(fixed), fixed).item())
