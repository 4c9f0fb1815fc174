"""Images and texts: features of 2 batches are cached without gradients, then each is computed again for its part."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import step

ACCUM_FREQ = 2


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.visual = nn.Sequential(nn.Flatten(), nn.Linear(48, 16))
        self.text = nn.EmbeddingBag(100, 16)
        self.logit_scale = nn.Parameter(torch.tensor(2.6))

    def forward(self, image, text):
        time.sleep(0.001)
        normalize = nn.functional.normalize
        return normalize(self.visual(image)), normalize(self.text(text)), self.logit_scale.exp()


def clip_loss(images, texts, scale):
    logits, labels = scale * images @ texts.T, torch.arange(len(images))
    return (nn.functional.cross_entropy(logits, labels) + nn.functional.cross_entropy(logits.T, labels)) / 2


data = TensorDataset(torch.randn(2000, 3, 4, 4), torch.randint(100, (2000, 7)))
model = Clip()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
images, texts, image_features, text_features = [], [], [], []
for i, (image, text) in enumerate(DataLoader(data, batch_size=14, shuffle=True, drop_last=True)):
    with torch.no_grad():
        image_out, text_out, _ = model(image, text)
    images.append(image)
    texts.append(text)
    image_features.append(image_out)
    text_features.append(text_out)
    if (i + 1) % ACCUM_FREQ:
        continue
    optimizer.zero_grad()
    for j in range(ACCUM_FREQ):
        image_out, text_out, scale = model(images[j], texts[j])
        all_images = torch.cat([*image_features[:j], image_out, *image_features[j + 1 :]])
        all_texts = torch.cat([*text_features[:j], text_out, *text_features[j + 1 :]])
        clip_loss(all_images, all_texts, scale).backward()
    optimizer.step()
    step(sum(map(len, images)))
    images, texts, image_features, text_features = [], [], [], []
