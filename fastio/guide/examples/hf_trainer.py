"""The Trainer of transformers: a checkpoint within an epoch continues with the next sample.

    $ fastio pack photos/ photos.lmdb                               # class folders
    $ python hf_trainer.py photos.lmdb out --steps 200              # stops there, with a checkpoint
    $ python hf_trainer.py photos.lmdb out                          # goes on

It needs `pip install 'fastio[transformers]'`. One call replaces the dataset's map, the collator and the workers.
"""

import argparse
from functools import partial

from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from fastio import FastDataset, FastLoader
from fastio.integrations.transformers import use_loaders
from fastio.transforms import CenterCrop, Normalize, RandomHorizontalFlip, RandomResizedCrop, Resize

SIDE = 64
NORMALIZE = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("out", help="folder of the checkpoints")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=-1, help="stop after so many, with a checkpoint")
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()
    dataset = FastDataset(options.store)

    # Or ResNetForImageClassification.from_pretrained("microsoft/resnet-50", num_labels=...), with crops of 224.
    config = ResNetConfig(embedding_size=32, hidden_sizes=[32, 64], depths=[1, 1], num_labels=len(dataset.classes))
    model = ResNetForImageClassification(config)
    arguments = TrainingArguments(
        options.out,
        num_train_epochs=options.epochs,
        max_steps=options.steps,
        per_device_train_batch_size=options.batch_size,
        per_device_eval_batch_size=options.batch_size,
        save_steps=100,
        report_to="none",
    )
    trainer = Trainer(model, arguments, eval_dataset=dataset)
    train = partial(
        FastLoader,
        dataset,
        options.batch_size,
        shuffle=True,
        transforms=[RandomResizedCrop(SIDE), RandomHorizontalFlip(), NORMALIZE],
    )
    evaluate = partial(FastLoader, dataset, options.batch_size, transforms=[Resize(SIDE), CenterCrop(SIDE), NORMALIZE])
    use_loaders(trainer, train=train, evaluate=evaluate)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(options.out))
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
