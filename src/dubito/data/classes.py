"""Names of classes, in the order of the published label numbers."""

from __future__ import annotations

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

CIFAR100 = (
    *("apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle"),
    *("bottle", "bowl", "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar"),
    *("cattle", "chair", "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile"),
    *("cup", "dinosaur", "dolphin", "elephant", "flatfish", "forest", "fox", "girl", "hamster"),
    *("house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion", "lizard", "lobster"),
    *("man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange"),
    *("orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy"),
    *("porcupine", "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal"),
    *("shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar"),
    *("sunflower", "sweet_pepper", "table", "tank", "telephone", "television", "tiger", "tractor"),
    *("train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman"),
    "worm",
)

CAMVID = (
    *("Sky", "Building", "Pole", "Road", "Pavement", "Tree", "SignSymbol", "Fence", "Car", "Pedestrian"),
    "Bicyclist",
)
CAMVID_VOID = 11  # in the files; not a class

CLOTHING1M = (
    *(
        "T-Shirt",
        "Shirt",
        "Knitwear",
        "Chiffon",
        "Sweater",
        "Hoodie",
        "Windbreaker",
        "Jacket",
        "Downcoat",
        "Suit",
    ),
    *("Shawl", "Dress", "Vest", "Underwear"),
)

VOC = (
    *("background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train"),
    "tvmonitor",
)

CITYSCAPES = (
    *("road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign"),
    *("vegetation", "terrain", "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle"),
    "bicycle",
)
# Number in the label files -> class; the other numbers up to 33 are void.
CITYSCAPES_IDS = {
    number: train_id
    for train_id, number in enumerate(
        (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)
    )
}
