"""timm: a network of theirs as backbone, a head of ours that knows how unsure it is."""

import timm
import torch
from digits import load

import dubito


def pictures(x):
    """Digits of 8 x 8 as pictures of 32 x 32 with three channels."""
    return torch.nn.functional.interpolate(x.view(-1, 1, 8, 8), size=32).repeat(1, 3, 1, 1)


def main(name="resnet10t", pretrained=False, epochs=6):
    """Fine-tune with `pretrained=True` where weights can be downloaded; from scratch otherwise."""
    x, y, test_x, test_y = load(rate=0.2)
    torch.manual_seed(0)
    backbone = timm.create_model(name, pretrained=pretrained, num_classes=0)  # features, no classifier
    model = dubito.Model(backbone, dubito.Diagonal(backbone.num_features, 10), temperature=0.5)
    run = dubito.fit(
        model,
        dubito.LabelledData(pictures(x), y),
        optimizer=dubito.optim.adam,
        epochs=epochs,
        batch_size=64,
        seed=0,
        progress=False,
    )
    with torch.no_grad():
        score = (run.model(pictures(test_x)).argmax(-1) == test_y).float().mean().item()
    print(f"{name}: accuracy on clean test labels {score:.3f}")
    return score


if __name__ == "__main__":
    main()
