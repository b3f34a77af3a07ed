"""pandas: a long table of labels from several people, one row per label."""

import pandas as pd
import torch

from dubito import CrowdLabels, crowd, noise


def table(seed=0):
    """300 pictures, each named by three of six people of different skill."""
    g = torch.Generator().manual_seed(seed)
    names = ["cat", "dog", "bird"]
    truth = torch.randint(3, (300,), generator=g)
    skills = [0.95, 0.9, 0.8, 0.7, 0.5, 0.4]
    matrices = torch.stack([noise.flip_to_other(3, 1 - s) for s in skills])
    item, who, label = noise.simulate(truth, matrices, g, labels_per_item=3)
    rows = pd.DataFrame(
        {
            "picture": [f"img{i:03d}.jpg" for i in item.tolist()],
            "person": [f"person {r}" for r in who.tolist()],
            "label": [names[k] for k in label.tolist()],
        }
    )
    return rows, pd.Series([names[k] for k in truth.tolist()], index=[f"img{i:03d}.jpg" for i in range(300)])


def main():
    """Consensus, skills and doubtful labels as data frames."""
    rows, truth = table()
    votes = CrowdLabels(rows["picture"], rows["person"], rows["label"])
    answer = crowd.aggregate(votes)

    consensus = pd.Series(answer.classes[answer.codes.numpy()], index=answer.items)
    skills = pd.Series(answer.skills.numpy(), index=answer.annotators).sort_values(ascending=False)
    rows["p_right"] = crowd.label_quality(votes, answer).numpy()

    print(skills.round(2).to_string())
    print(rows.sort_values("p_right").head(5).to_string(index=False))
    score = (consensus == truth[consensus.index]).mean()
    print(f"consensus right: {score:.3f}")
    return score


if __name__ == "__main__":
    main()
