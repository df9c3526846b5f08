"""Train a small U-Net straight from a TACO, stop it anywhere, and go on.

    python examples/train_unet.py work                        pack made-up scenes, train
    python examples/train_unet.py work --rasters folder       pack the rasters of a folder instead
    python examples/train_unet.py work --epochs 8             train longer

Chips of 128 x 128 pixels and a mask derived from them become one file, ``work/chips.tacozip``.
Training reads from it by range; nothing is unpacked. Every few steps ``work/checkpoint.pt`` is
written with the weights and the state of the loader. Kill the program and start it again: it ends
with the same weights as if it had not been killed. Needs torch (``pip install 'comal[ml]'``).
"""

from __future__ import annotations

import argparse
import hashlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import rasterio
import torch
from rasterio.io import MemoryFile
from torch import nn
from torch.nn.functional import cross_entropy, max_pool2d, one_hot

from comal import ml, taco

SIZE = 128
BANDS = 3


# -- the archive -----------------------------------------------------------------------------------


def scenes(count: int) -> Iterator[tuple[str, np.ndarray]]:
    """Made-up images: smooth hills in three bands, with noise."""
    rng = np.random.default_rng(0)
    for number in range(count):
        coarse = rng.normal(size=(BANDS, 6, 6))
        smooth = np.kron(coarse, np.ones((1, 22, 22)))[:, :SIZE, :SIZE]
        for axis in (1, 2):  # a running mean makes hills of the steps
            smooth = sum(np.roll(smooth, shift, axis) for shift in range(-8, 9)) / 17
        noise = rng.normal(scale=0.1, size=smooth.shape)
        yield (
            f"scene_{number:03d}",
            ((smooth + noise) * 1000 + 5000).clip(1, 20_000).astype("uint16"),
        )


def chips(folder: Path, most: int = 40) -> Iterator[tuple[str, np.ndarray]]:
    """Chips of all rasters with enough bands, at most some of each."""
    for path in sorted(folder.glob("*.tif")):
        with rasterio.open(path) as raster:
            if raster.count < BANDS:
                continue
            places = [
                (column, row)
                for row in range(0, raster.height - SIZE + 1, SIZE)
                for column in range(0, raster.width - SIZE + 1, SIZE)
            ]
            for column, row in places[:: max(1, len(places) // most)]:
                window = rasterio.windows.Window(column, row, SIZE, SIZE)
                yield f"{path.stem}_{column}_{row}", raster.read([1, 2, 3], window=window)


def label(image: np.ndarray) -> np.ndarray:
    """1 where the second band is above the mean of the others: green things, on a photograph."""
    others = image[[0, 2]].astype("float32").mean(axis=0)
    return (image[1] > others).astype("uint8")[None]


def geotiff(array: np.ndarray) -> bytes:
    bands, height, width = array.shape
    profile = {"count": bands, "height": height, "width": width, "dtype": array.dtype}
    with MemoryFile() as file:
        with file.open(driver="GTiff", compress="deflate", predictor=2, **profile) as raster:
            raster.write(array)
        return bytes(file.read())


def pack(target: Path, rasters: Path | None, count: int = 160) -> None:
    samples = [
        taco.Sample(
            id=name,
            path=taco.Tortilla(
                [
                    taco.Sample(id="image.tif", path=geotiff(image)),
                    taco.Sample(id="mask.tif", path=geotiff(label(image))),
                ]
            ),
            split="test" if number % 5 == 4 else "train",
        )
        for number, (name, image) in enumerate(scenes(count) if rasters is None else chips(rasters))
    ]
    about = taco.Taco(
        taco.Tortilla(samples),
        id="chips",
        dataset_version="1.0.0",
        description="Chips with a mask that is derived from them.",
        licenses=["CC0-1.0"],
        providers=[{"name": "comal", "roles": ["producer"]}],
        tasks=["semantic-segmentation"],
    )
    taco.create(about, target)


# -- the model -------------------------------------------------------------------------------------


def block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.ReLU(),
    )


class UNet(nn.Module):
    """Two steps down, two steps up."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first = block(BANDS, width)
        self.second = block(width, 2 * width)
        self.bottom = block(2 * width, 4 * width)
        self.up = nn.Upsample(scale_factor=2)
        self.back = block(6 * width, 2 * width)
        self.last = nn.Sequential(block(3 * width, width), nn.Conv2d(width, 2, 1))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        first = self.first(image)
        second = self.second(max_pool2d(first, 2))
        bottom = self.bottom(max_pool2d(second, 2))
        back = self.back(torch.cat([self.up(bottom), second], 1))
        return self.last(torch.cat([self.up(back), first], 1))


def normalised(image: torch.Tensor) -> torch.Tensor:
    pixels = image.float()
    mean, deviation = pixels.mean((2, 3), keepdim=True), pixels.std((2, 3), keepdim=True)
    return (pixels - mean) / (deviation + 1)


# -- training --------------------------------------------------------------------------------------


def save(path: Path, state: dict[str, object]) -> None:
    """Whole or not at all: a kill must not leave half a checkpoint."""
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)


def train(
    archive: Path, work: Path, epochs: int, every: int, tell: Callable[[str], None] = print
) -> UNet:
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    fields = {"image": "image.tif", "mask": "mask.tif"}
    data = ml.dataset(archive, fields, where="split = 'train'")
    loader = data.loader(8, shuffle=True, seed=1, workers=2, to="torch")

    checkpoint = work / "checkpoint.pt"
    step = 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
        step = state["step"]
        tell(f"goes on after step {step}")

    while loader.epoch < epochs:
        for batch in loader:
            loss = cross_entropy(model(normalised(batch["image"])), batch["mask"][:, 0].long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % every == 0:
                parts = {"model": model, "optimizer": optimizer, "loader": loader}
                states = {name: part.state_dict() for name, part in parts.items()}
                save(checkpoint, {**states, "step": step})
                tell(f"epoch {loader.epoch}, step {step}, loss {loss.item():.4f}")
    return model


@torch.no_grad()
def accuracy(model: UNet, archive: Path) -> float:
    """Mean intersection over union of both classes, on samples that training did not see."""
    data = ml.dataset(archive, {"image": "image.tif", "mask": "mask.tif"}, where="split = 'test'")
    model.eval()
    both = either = torch.zeros(2)
    for batch in data.loader(8, to="torch", rest="uneven"):
        found = one_hot(model(normalised(batch["image"])).argmax(1), 2).bool()
        right = one_hot(batch["mask"][:, 0].long(), 2).bool()
        both = both + (found & right).sum((0, 1, 2))
        either = either + (found | right).sum((0, 1, 2))
    return float((both / either.clamp(min=1)).mean())


def digest(model: UNet) -> str:
    """The weights in a few letters, to compare two runs."""
    found = hashlib.sha256()
    for tensor in model.state_dict().values():
        found.update(tensor.numpy().tobytes())
    return found.hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path, help="folder for the archive and the checkpoint")
    parser.add_argument("--rasters", type=Path, help="folder of GeoTIFFs to cut chips from")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--every", type=int, default=5, help="steps between checkpoints")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
    asked.work.mkdir(exist_ok=True)
    archive = asked.work / "chips.tacozip"
    if not archive.exists():
        pack(archive, asked.rasters)
    model = train(archive, asked.work, asked.epochs, asked.every)
    print(f"weights {digest(model)}, intersection over union {accuracy(model, archive):.3f}")


if __name__ == "__main__":
    main()
