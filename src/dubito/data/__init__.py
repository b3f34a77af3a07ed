"""Data: the in-memory set, published sets by name, users' own files, splits, noise and augmentation."""

from ._download import download
from ._files import read_npy
from ._labelled import IGNORED, NONE_GIVEN, LabelledData, Triplets, normalise
from ._zips import read_npz
from .arrays import from_arrays, from_hugging_face, from_torch, map_npy, read_arrays
from .augment import augment
from .images import ImageFiles, image_folder
from .masks import mask_folders, pixel_images, read_mask
from .named import SETS, load
from .noisy import with_noise
from .sampling import balanced
from .splits import PROTOCOLS
from .tables import read_table

__all__ = [
    "IGNORED",
    "NONE_GIVEN",
    "PROTOCOLS",
    "SETS",
    "ImageFiles",
    "LabelledData",
    "Triplets",
    "augment",
    "balanced",
    "download",
    "from_arrays",
    "from_hugging_face",
    "from_torch",
    "image_folder",
    "load",
    "map_npy",
    "mask_folders",
    "normalise",
    "pixel_images",
    "read_arrays",
    "read_mask",
    "read_npy",
    "read_npz",
    "read_table",
    "with_noise",
]
