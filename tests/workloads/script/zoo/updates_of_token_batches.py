"""Translation: batches grouped by tokens, lists of 2 batches per update, and a dummy batch at the start."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import step

MAX_TOKENS = 96
lengths = torch.randint(4, 20, (1200,), generator=torch.Generator().manual_seed(0)).sort().values.tolist()


class Sentences(Dataset):
    def __len__(self):
        return len(lengths)

    def __getitem__(self, index):
        return index, torch.randint(2, 50, (lengths[index],))

    def collater(self, items):
        ids = nn.utils.rnn.pad_sequence([tokens for _, tokens in items], batch_first=True, padding_value=1)
        return {"id": torch.tensor([i for i, _ in items]), "nsentences": len(items), "net_input": {"tokens": ids}}


def batches_by_size():
    batch = []
    for index, length in enumerate(lengths):
        if batch and (len(batch) + 1) * length > MAX_TOKENS:
            yield batch
            batch = []
        batch.append(index)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(50, 16, padding_idx=1), nn.Linear(16, 50)

    def forward(self, tokens):
        time.sleep(0.003)
        return nn.functional.cross_entropy(self.out(self.embed(tokens)).mT, tokens, ignore_index=1, reduction="sum")


data, model = Sentences(), Model()
optimizer = torch.optim.Adam(model.parameters())
batches = list(batches_by_size())
order = torch.randperm(len(batches)).tolist()
loader = DataLoader(data, batch_sampler=[batches[i] for i in order], collate_fn=data.collater)
(0.0 * model(**data.collater([data[0], data[1]])["net_input"])).backward()
iterator = iter(loader)
for update in zip(iterator, iterator, strict=False):
    optimizer.zero_grad()
    for sample in update:
        model(**sample["net_input"]).backward()
    optimizer.step()
    step(sum(sample["nsentences"] for sample in update))
