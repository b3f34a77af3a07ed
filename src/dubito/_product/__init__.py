"""Behind `dubito fit`, `predict`, `audit` and `compare`: from a user's files to a folder with everything in it.

RUN/config.json              what was asked for: the identity of the run
    model/                   sealed checkpoints of the final network and of those of the folds
    predictions.csv          for every item
    label_quality.csv        for every label: the probability that it is wrong, and why
    relabel.csv              the most suspicious labels with an empty column `gold` to fill in
    consensus.csv            for every item of a crowd
    transition.csv           T[true, given], or confusion_matrices.csv with one matrix per annotator
    out_of_fold.npz          probabilities by networks that did not see the item
    metrics.json, report.html
    training/                one run folder per network; a stopped fit goes on from them
"""
