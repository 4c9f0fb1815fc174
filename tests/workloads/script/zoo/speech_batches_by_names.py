"""Speech: an iterator of (names, padded batch) pairs, a model that returns loss, statistics and weight."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from truth import step


class Utterances(Dataset):
    def __init__(self, lengths):
        self.lengths = lengths

    def __getitem__(self, name):
        frames = self.lengths[name]
        return name, {"speech": torch.randn(frames, 20), "text": torch.randint(1, 30, (frames // 8,))}


def collate(items):
    names = [name for name, _ in items]
    batch = {}
    for key, pad in (("speech", 0.0), ("text", -1)):
        arrays = [item[key] for _, item in items]
        batch[key] = nn.utils.rnn.pad_sequence(arrays, batch_first=True, padding_value=pad)
        batch[f"{key}_lengths"] = torch.tensor([len(array) for array in arrays])
    return names, batch


class CtcModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.GRU(20, 12, batch_first=True)
        self.out = nn.Linear(12, 30)

    def forward(self, speech, speech_lengths, text, text_lengths):
        time.sleep(0.004)
        log_probs = self.out(self.encoder(speech)[0]).log_softmax(2).transpose(0, 1)
        loss = nn.functional.ctc_loss(log_probs, text.clamp(min=0), speech_lengths, text_lengths)
        return loss, {"loss": loss.detach()}, torch.tensor(len(speech))


lengths = {f"utt{i:04d}": 16 + i % 16 for i in range(300)}
names = sorted(lengths, key=lengths.get)
groups = [names[i : i + 4 + i % 3] for i in range(0, 290, 7)]
model = CtcModel()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _epoch in range(100):
    for utt_ids, batch in DataLoader(Utterances(lengths), batch_sampler=groups, collate_fn=collate):
        loss, stats, weight = model(**batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        optimizer.zero_grad()
        step(len(utt_ids))
