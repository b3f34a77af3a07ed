"""The parts of the training loop (`train.fit`), in the order in which it needs them.

| part | what it does |
|---|---|
| `options`, `admission`, `trial` | refuse what cannot be trained before the first step |
| `session` | what surrounds the steps: history, checkpoints, signals, early stopping, `progress` |
| `nonfinite`, `quick` | the update, refused where something is not finite; a faster one on a CPU |
"""
