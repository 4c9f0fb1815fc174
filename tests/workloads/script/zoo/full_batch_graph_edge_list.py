"""A graph convolution network on the one whole graph, given as edge lists, and no tests."""

import time

import torch
from torch import nn
from truth import step

NODES, CLASSES = 300, 5


class GraphConvolution(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) / inputs**0.5)

    def forward(self, x, edges):
        return torch.zeros(len(x), self.weight.shape[1]).index_add(0, edges[1], (x @ self.weight)[edges[0]])


class Gcn(nn.Module):
    def __init__(self):
        super().__init__()
        self.gc1, self.gc2 = GraphConvolution(20, 16), GraphConvolution(16, CLASSES)

    def forward(self, x, edges):
        time.sleep(0.004)
        x = nn.functional.dropout(self.gc1(x, edges).relu(), training=self.training)
        return self.gc2(x, edges).log_softmax(1)


edges = torch.randint(NODES, (2, 1500))
features, labels = torch.randn(NODES, 20), torch.randint(CLASSES, (NODES,))
train = torch.rand(NODES) < 0.4
model = Gcn()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for _epoch in range(200):
    model.train()
    optimizer.zero_grad()
    nn.functional.nll_loss(model(features, edges)[train], labels[train]).backward()
    optimizer.step()
    step(NODES)  # whose losses are those of the labelled ones
