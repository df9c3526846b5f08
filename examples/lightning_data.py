"""A data module of Lightning over a TACO, whose runs continue exactly from any checkpoint.

    python examples/lightning_data.py work                  pack made-up scenes, train, go on
    python examples/lightning_data.py work --processes 2    read in workers of torch

By default the loader of comal reads in threads, and Lightning keeps its state. Workers of torch
take batches ahead of the loop, so the loop tells what it has done before they take the first. A
run goes on with the loader it began with. Needs ``pip install 'comal[ml]' lightning``.
"""

import argparse
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader
from train_unet import UNet, cross_entropy, normalised, pack

from comal import ml


class Scenes(lightning.LightningDataModule):
    def __init__(self, archive: Path, batch_size: int = 8, processes: int = 0) -> None:
        super().__init__()
        self.archive, self.batch_size, self.processes = archive, batch_size, processes

    def setup(self, stage: str) -> None:
        if stage == "fit":
            fields = {"image": "image.tif", "mask": "mask.tif"}
            self.train = ml.dataset(self.archive, fields, where="split = 'train'")

    def train_dataloader(self) -> Any:
        place = {"rank": self.trainer.global_rank, "ranks": self.trainer.world_size}
        order = {"shuffle": True, "seed": 1, **place}
        if not self.processes:
            return self.train.loader(self.batch_size, to="torch", **order)
        sampler = self.train.sampler(self.batch_size, **order)
        sampler.set_epoch(*done(self.trainer.fit_loop))
        options = {"num_workers": self.processes, "collate_fn": ml.collate}
        return DataLoader(self.train, batch_sampler=sampler, persistent_workers=True, **options)


def done(loop: Any) -> tuple[int, int]:
    """Epochs that are done, and batches of the one after; those of the checkpoint, if any."""
    epochs, batches = loop.epoch_progress.current, loop.epoch_loop.batch_progress.current
    return epochs.processed, batches.processed if epochs.processed < epochs.ready else 0


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = UNet()

    def training_step(self, batch: dict[str, Any]) -> torch.Tensor:
        return cross_entropy(self.net(normalised(batch["image"])), batch["mask"][:, 0].long())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path, help="folder for the archive and checkpoints")
    parser.add_argument("--processes", type=int, default=0, help="workers of torch")
    asked = parser.parse_args()
    archive, last = asked.work / "chips.tacozip", asked.work / "last.ckpt"
    if not archive.exists():
        pack(archive, None)
    keep = ModelCheckpoint(asked.work, "last", every_n_train_steps=5, enable_version_counter=False)
    # The sampler shares an epoch among ranks; Lightning must not put another one around it.
    trainer = lightning.Trainer(max_epochs=3, callbacks=[keep], use_distributed_sampler=False)
    going_on = {"ckpt_path": last} if last.exists() else {}
    trainer.fit(Model(), datamodule=Scenes(archive, processes=asked.processes), **going_on)


if __name__ == "__main__":
    main()
