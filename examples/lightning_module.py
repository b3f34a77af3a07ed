"""Lightning: a logistic-normal head and its loss in a LightningModule."""

import lightning
import torch
from digits import load
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import dubito
from dubito.links import logistic_normal_log_softmax


class Doubtful(lightning.LightningModule):
    """Features, then a mean and a covariance root of the label's logit."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 128), nn.ReLU())
        self.head = dubito.LogisticNormal(128, 10)

    def forward(self, x):
        """Log-probabilities of the true class."""
        return logistic_normal_log_softmax(self.head(self.body(x)).mean)

    def training_step(self, batch, _):
        """The loss sees mean and root."""
        x, y = batch
        latent = self.head(self.body(x))
        return dubito.logistic_normal_nll(latent.mean, latent.root, y, lam=0.5)

    def configure_optimizers(self):
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main(epochs=20):
    """Train on noisy labels, score on clean ones."""
    x, y, test_x, test_y = load(rate=0.3)
    lightning.seed_everything(0, verbose=False)
    model = Doubtful()
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True))
    with torch.no_grad():
        score = (model(test_x).argmax(-1) == test_y).float().mean().item()
    print(f"accuracy on clean test labels {score:.3f}")
    return score


if __name__ == "__main__":
    main()
