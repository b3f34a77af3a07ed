"""Hugging Face: a loss of ours inside `Trainer`, through `compute_loss_func`."""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import dubito


def sentences(count, wrong, seed):
    """Twelve words each; words 10 to 19 are glad, 20 to 29 sad, the majority decides. Some labels are wrong."""
    g = torch.Generator().manual_seed(seed)
    words = torch.randint(10, 30, (count, 12), generator=g)
    truth = ((words >= 20).sum(-1) > 6).long()
    flipped = torch.rand(count, generator=g) < wrong
    labels = torch.where(flipped, 1 - truth, truth)
    return [{"input_ids": w, "labels": y} for w, y in zip(words, labels)], truth


def robust_loss(outputs, labels, num_items_in_batch=None):
    """In place of the model's own loss: the Trainer adds up the batches of a step, whose labels it has counted."""
    total = dubito.gce(outputs.logits, labels, q=0.7, reduction="sum")
    return total / (len(labels) if num_items_in_batch is None else num_items_in_batch)


def main(epochs=6):
    """A very small BERT from scratch; `from_pretrained` works the same way."""
    train, _ = sentences(800, 0.25, seed=0)
    test, truth = sentences(400, 0.0, seed=1)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=32, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    with tempfile.TemporaryDirectory() as folder:
        options = TrainingArguments(
            folder,
            num_train_epochs=epochs,
            per_device_train_batch_size=32,
            learning_rate=3e-3,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        )
        model = BertForSequenceClassification(config)
        trainer = Trainer(model, options, train_dataset=train, compute_loss_func=robust_loss)
        trainer.train()
        guess = torch.as_tensor(trainer.predict(test).predictions).argmax(-1)
    score = (guess == truth).float().mean().item()
    print(f"accuracy on clean test labels {score:.3f}")
    return score


if __name__ == "__main__":
    main()
