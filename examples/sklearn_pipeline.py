"""scikit-learn: the classifier at the end of a pipeline, and a search over methods."""

from digits import load
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from dubito.sklearn import NoisyLabelClassifier


def main():
    """Methods are compared by accuracy on *noisy* held-out labels, the only ones there are."""
    x, y, test_x, test_y = (part.numpy() for part in load(rate=0.3))
    pipeline = make_pipeline(PCA(30, random_state=0), NoisyLabelClassifier(epochs=20, random_state=0))
    grid = {"noisylabelclassifier__method": ["ce", "gce:q=0.7"]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(x, y)
    score = search.score(test_x, test_y)
    print(search.best_params_, f"accuracy on clean test labels {score:.3f}")
    return score


if __name__ == "__main__":
    main()
