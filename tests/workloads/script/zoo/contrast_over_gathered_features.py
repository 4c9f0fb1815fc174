"""Two ranks: images and texts are contrasted over the features of both ranks, gathered with gradients of one's own."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from truth import step


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.visual, self.text = nn.Linear(30, 16), nn.EmbeddingBag(70, 16)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, image, text):
        time.sleep(0.004)
        images = nn.functional.normalize(self.visual(image.flatten(1)))
        return images, nn.functional.normalize(self.text(text)), self.scale.exp()


def gathered(features):
    parts = [torch.empty_like(features) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, features.detach())
    parts[dist.get_rank()] = features
    return torch.cat(parts)


dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(320, 5, 6), torch.randint(70, (320, 9)))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=16, sampler=sampler, drop_last=True)
model = DistributedDataParallel(Clip())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(100):
    sampler.set_epoch(epoch)
    for image, text in loader:
        images, texts, scale = model(image, text)
        logits = scale * gathered(images) @ gathered(texts).T
        labels = torch.arange(len(logits))
        loss = nn.functional.cross_entropy(logits, labels) + nn.functional.cross_entropy(logits.T, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step(len(image))
