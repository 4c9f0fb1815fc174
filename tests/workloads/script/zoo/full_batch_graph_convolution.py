"""A graph convolution network on the one whole graph each epoch, with no loader, tested after each epoch."""

import time

import torch
from torch import nn
from truth import step, testing

NODES, CLASSES = 300, 5


class GraphConvolution(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) / inputs**0.5)

    def forward(self, x, adjacency):
        return torch.sparse.mm(adjacency, x @ self.weight)


class Gcn(nn.Module):
    def __init__(self):
        super().__init__()
        self.gc1, self.gc2 = GraphConvolution(20, 16), GraphConvolution(16, CLASSES)

    def forward(self, x, adjacency):
        time.sleep(0.004)
        x = nn.functional.dropout(self.gc1(x, adjacency).relu(), training=self.training)
        return self.gc2(x, adjacency).log_softmax(1)


edges = torch.randint(NODES, (2, 1500))
adjacency = torch.sparse_coo_tensor(edges, torch.full((1500,), 0.2), (NODES, NODES)).coalesce()
features, labels = torch.randn(NODES, 20), torch.randint(CLASSES, (NODES,))
train, valid = torch.arange(140), torch.arange(140, 300)
model = Gcn()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(200):
    model.train()
    optimizer.zero_grad()
    nn.functional.nll_loss(model(features, adjacency)[train], labels[train]).backward()
    optimizer.step()
    step(NODES)  # whose losses are those of the labelled ones
    if epoch % 5 == 4:
        with testing(), torch.no_grad():
            model.eval()
            print((model(features, adjacency)[valid].argmax(1) == labels[valid]).float().mean().item())
