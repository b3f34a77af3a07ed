"""The numbered results of the four papers: item, what it says, and what in the library it is about.

The third entry names functions for results that are facts about them rather than their definition; where it starts
with "-" there is nothing to compute, and the reason follows.
"""

from __future__ import annotations

TITLES = {
    "collier2020": "Collier, Mustafa, Kokiopoulou, Berent 2020: temperature for heteroscedastic classifiers",
    "englesson2023": "Englesson, Mehrpanah, Azizpour 2023: logistic-normal likelihoods",
    "lukasik2020": "Lukasik, Bhojanapalli, Menon, Kumar 2020: label smoothing under label noise",
    "tanno2019": "Tanno, Saeedi, Sankaranarayanan, Alexander, Silberman 2019: regularised annotator confusion",
}

Item = tuple[str, str, str]

# Results that the library does not contain yet. An entry goes when its function and test come.
PENDING: set[tuple[str, str]] = set()

ITEMS: dict[str, list[Item]] = {
    "collier2020": [
        (
            "eq. 1",
            "Gaussian regression: residual over variance plus log-variance",
            "losses.logistic_normal_nll",
        ),
        ("eq. 2", "logits are Gaussian, then softmax", ""),
        (
            "eq. 3",
            "a label is the class of greatest utility; Gumbel noise gives softmax",
            "links.log_softmax",
        ),
        ("eq. 4", "the Gaussian classifier as a utility model with input-dependent scale", ""),
        ("eq. 5", "the winner's probability is not the expected softmax", "integrals.expected_log_softmax"),
        ("eq. 6", "as the temperature falls, the expected softmax becomes the winner's probability", ""),
        ("eq. 7", "the expected softmax by reparametrised samples", ""),
        ("eq. 8", "two classes: one latent and a sigmoid", ""),
    ],
    "englesson2023": [
        ("eq. 1", "an observed logit is the true one plus noise", "losses.logistic_normal_nll"),
        ("eq. 2", "Gaussian regression with a variance for each example", "losses.logistic_normal_nll"),
        ("eq. 3", "the noise model on the simplex, through the centred softmax", ""),
        ("eq. 4", "density of a target on the simplex", ""),
        ("eq. 5", "negative log-likelihood: quadratic form and log-determinant", ""),
        (
            "eq. 6",
            "gradient in the mean: the residual, weighted by the inverse covariance",
            "losses.logistic_normal_nll",
        ),
        ("eq. 7", "the best covariance is the residual's outer product", "losses.logistic_normal_nll"),
        (
            "eq. 8",
            "at the best covariance the gradient falls with the residual",
            "losses.logistic_normal_nll",
        ),
        ("eq. 9", "root of the covariance: rank one plus lambda I", ""),
        ("eq. 10", "centred softmax at a temperature", ""),
        ("eq. 11", "its inverse: target logits scale with the temperature", ""),
        (
            "eq. 12",
            "under identity covariance the quadratic term scales with the temperature squared",
            "losses.logistic_normal_nll",
        ),
        ("eq. 13", "heteroscedastic prediction: the expected softmax", ""),
        ("eq. 14", "gradient of the heteroscedastic loss in the mean", "integrals.expected_log_softmax"),
        ("eq. 15", "Jacobian of the inverse centred softmax", "links.centred_log_softmax"),
        ("eq. 16", "the logistic-normal density, derived", "losses.logistic_normal_nll"),
        ("eq. 17", "gradient of the likelihood in the covariance", "losses.logistic_normal_nll"),
        ("eq. 18", "the trace identity behind its first term", "losses.logistic_normal_nll"),
        ("eq. 19", "the gradient as a linear system in the residual", "losses.logistic_normal_nll"),
        ("eq. 20", "the residual is an eigenvector of its outer product", "losses.logistic_normal_nll"),
        ("eq. 21", "two classes: residual over variance plus log-variance", "losses.logistic_normal_nll"),
        (
            "eq. 22",
            "its derivative in the variance vanishes at the squared residual",
            "losses.logistic_normal_nll",
        ),
        (
            "eq. 23",
            "its derivative in c: residuals below lambda are not attenuated",
            "losses.logistic_normal_nll",
        ),
        ("eq. 24", "the smoothed target distribution", ""),
        ("eq. 25", "its logit for a class with a coordinate of its own", ""),
        ("eq. 26", "its logit for the last class, which is longer", ""),
        (
            "sec. A.6",
            "the gradient of eq. 14 for a finite number of samples",
            "integrals.expected_log_softmax",
        ),
    ],
    "lukasik2020": [
        ("eq. 1", "label smoothing as a loss on a mixed target", ""),
        ("eq. 2", "class-conditional noise: observed = T' clean", ""),
        ("eq. 3", "symmetric noise as one matrix", ""),
        ("eq. 4", "backward correction by the inverse matrix is unbiased", ""),
        ("eq. 5", "forward correction: T acts on probabilities", ""),
        ("sec. 3.1", "smearing: any matrix on the vector of losses", ""),
        ("sec. 3.3", "what a smeared loss fits: M' p, backward correction gives p back", "targets.smear"),
        ("eq. 6", "smoothing adds, backward correction subtracts, the sum of all losses", "targets.smear"),
        ("eq. 7", "square loss and a linear model: smoothing is shrinkage", "targets.smooth"),
        ("sec. 4.2", "smoothed risk = risk + strength times a regulariser", "targets.smooth"),
        ("eq. 8", "that regulariser for softmax", "targets.smooth"),
        ("theorem 1", "for linear models it is least at weights of zero", "targets.smooth"),
        ("sec. A", "the regulariser is the divergence from uniform, up to constants", "targets.smooth"),
    ],
    "tanno2019": [
        ("eq. 1", "annotators are independent given the true label", ""),
        ("eq. 2", "confusion does not depend on the image", ""),
        ("eq. 3", "likelihood: cross-entropy of each annotator's predicted distribution", ""),
        ("eq. 4", "the same over given labels, plus the trace", ""),
        ("eq. 5", "a dominant estimate has the larger diagonal", "penalties.trace"),
        ("lemma 1", "one annotator: least trace gives the matrix back", ""),
        ("theorem 1", "many annotators: least trace of the mean gives all matrices back", ""),
        ("alg. 1", "joint training of network and matrices", ""),
        ("alg. 2", "generalised EM", ""),
        ("alg. 3", "model-bootstrapped EM", ""),
        ("listing 1", "total loss: cross-entropy plus scaled mean trace", ""),
        ("listing 2", "matrices: softplus, rows normalised, started at 6 I - 5", ""),
        ("listing 3", "cross-entropy over annotators with missing labels", ""),
        ("sec. 3.2", "error of estimated matrices", ""),
    ],
}
