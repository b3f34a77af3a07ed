"""The parts of `fast`, `fast_crowd` and `lanes`: many runs on one GPU, by mapped, captured and replayed steps.

| part | what it does |
|---|---|
| `replay` | a step as a pure function, its random numbers, capture and replay |
| `plan`, `rules` | a lane's batches and rates on the device; what it minimises |
| `convolutions`, `pixel_rows` | convolutions as matrix products, which can be mapped over runs |
"""
