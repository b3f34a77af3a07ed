"""Names that people give to columns, arrays and folders, tried in this order where none is told."""

from __future__ import annotations

from ..crowd.command import LABEL

LABELS = (*LABEL, "y", "target", "labels")
CLEAN = ("truth", "true_label", "clean_label", "clean", "true_class", "ground_truth", "true", "y_true")
CHECKED = ("gold", "correct", "corrected", "correction", "truth", "true_label")  # not "label": may be noisy
IDS = ("id", "item", "item_id", "task", "task_id", "name", "example", "example_id", "index", "")
IMAGES = ("image", "image_path", "file", "filename", "file_name", "path")
INPUT_KEYS = ("x", "X", "inputs", "features", "images", "x_train")
MASKS = ("mask", "masks", "annotations", "segmentations", "labels")  # beside one folder of images
SPLITS = ("train", "training", "test", "testing", "val", "valid", "validation", "dev", "eval")
