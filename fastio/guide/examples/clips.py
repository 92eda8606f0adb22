"""Clips of videos whose frames are stored as pictures: a small 3D network says which action a video shows.

    $ fastio pack videos/train/ train.lmdb
    $ fastio pack videos/test/ test.lmdb
    $ python clips.py train.lmdb test.lmdb --epochs 20

A video is a folder of frames whose name begins with the action: ``wave_017/frame0001.jpg``. In each epoch two clips of
each training video begin anywhere; of test videos, all clips that do not overlap are looked at.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional

from fastio import ClipSampler, FastDataset, FastLoader, StepTimer
from fastio.transforms import CenterCrop, ColorJitter, Normalize, RandomHorizontalFlip, RandomResizedCrop, Resize


def conv(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv3d(inputs, outputs, 3, stride=(1, 2, 2), padding=1), nn.BatchNorm3d(outputs), nn.ReLU())


def action_of(video: str) -> str:
    return video.rpartition("_")[0]


parser = argparse.ArgumentParser()
parser.add_argument("train")
parser.add_argument("test")
for name, default in (("epochs", 20), ("frames", 8), ("stride", 2), ("batch-size", 8), ("size", 112)):
    parser.add_argument(f"--{name}", type=int, default=default)
options = parser.parse_args()
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

train, test = FastDataset(options.train), FastDataset(options.test)
actions = sorted({action_of(video) for video in train.classes})
of_train, of_test = (  # the action of each video: labels are videos
    torch.tensor([actions.index(action_of(video)) for video in dataset.classes], device=device)
    for dataset in (train, test)
)
shape = {"frames": options.frames, "stride": options.stride, "batch_size": options.batch_size}
drawn = ClipSampler(train, clips_per_video=2, **shape)
every = ClipSampler(test, shuffle=False, **shape)
print(f"train: {drawn.report()}; test: {every.report()}")
normalize = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
crop = [RandomResizedCrop(options.size, scale=(0.5, 1.0)), RandomHorizontalFlip(), ColorJitter(0.2, 0.2), normalize]
centre = [Resize(options.size), CenterCrop(options.size), normalize]
loader = FastLoader(train, batch_sampler=drawn, transforms=crop, device=device)
test_loader = FastLoader(test, batch_sampler=every, transforms=centre, device=device)

layers = conv(3, 16), conv(16, 32), conv(32, 64), nn.AdaptiveAvgPool3d(1), nn.Flatten()
model = nn.Sequential(*layers, nn.Linear(64, len(actions))).to(device)
optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
for epoch in range(options.epochs):
    model.train()
    timer, losses = StepTimer(), []
    for clips, videos in timer(loader):  # (B, T, C, H, W), (B,)
        loss = functional.cross_entropy(model(clips.movedim(2, 1)), of_train[videos])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    rate = timer.summary().samples_per_s
    print(f"epoch {epoch}: loss {torch.stack(losses).mean():.3f}, {rate:,.0f} per second")

model.eval()
with torch.inference_mode():
    hits = [model(clips.movedim(2, 1)).argmax(1) == of_test[videos] for clips, videos in test_loader]
print(f"test: accuracy {torch.cat(hits).float().mean():.1%} of {sum(map(len, hits))} clips")
print(f"receipt: {loader.receipt()}")
