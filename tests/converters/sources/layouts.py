"""Small datasets in the layouts that people have, each written to a folder."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tests.converters.trees import picture, tree

WIDTH, HEIGHT = 40, 20
Files = dict[str, str | bytes]


def pictures(*names: str, mode: str = "RGB") -> Files:
    """Pictures of one size, of the kinds that their names say."""
    kinds = {".png": "PNG", ".jpg": "JPEG", ".JPEG": "JPEG"}
    return {
        name: picture(i, kind=kinds[Path(name).suffix], size=(WIDTH, HEIGHT), mode=mode) for i, name in enumerate(names)
    }


def yolo(folder: Path, count: int = 7) -> Path:
    """Images and labels of YOLO without parts."""
    texts = {f"labels/{i}.txt": f"{i} 0.5 0.5 0.1 0.1\n" for i in range(count)}
    return tree(folder, {**pictures(*(f"images/{i}.png" for i in range(count))), **texts})


def voc_xml(
    *objects: tuple[str, tuple[object, object, object, object]],
    size: tuple[int, int] | None = (WIDTH, HEIGHT),
    more: str = "<difficult>0</difficult>",
) -> str:
    """An XML of VOC with these objects: the name and xmin, ymin, xmax, ymax of each."""
    sides = ("xmin", "ymin", "xmax", "ymax")
    inner = "".join(
        f"<object><name>{name}</name>{more}<bndbox>"
        + "".join(f"<{side}>{value}</{side}>" for side, value in zip(sides, box, strict=True))
        + "</bndbox></object>"
        for name, box in objects
    )
    said = "" if size is None else f"<size><width>{size[0]}</width><height>{size[1]}</height><depth>3</depth></size>"
    return f"<annotation><folder>VOC</folder>{said}{inner}</annotation>"


def voc(folder: Path, parts: Mapping[str, Sequence[int]] | None = None, count: int = 7) -> Path:
    """Pictures of VOC with an object each, and lists of some of them."""
    names = [f"2007_{i:06d}" for i in range(count)]
    files = pictures(*(f"JPEGImages/{name}.jpg" for name in names))
    for i, name in enumerate(names):
        files[f"Annotations/{name}.xml"] = voc_xml((("dog", "cat")[i % 2], (1, 2, 11 + i, 12)))
    for part, chosen in (parts or {"trainval": range(count)}).items():
        files[f"ImageSets/Main/{part}.txt"] = "".join(f"{names[i]}\n" for i in chosen)
    return tree(folder, files)


def listed(folder: Path, count: int = 7) -> Path:
    """A list of pictures with their labels, in the folder above theirs."""
    names = [f"images/{i}.jpg" for i in range(count)]
    return tree(folder, {**pictures(*names), "all.txt": "".join(f"{name} {i % 3}\n" for i, name in enumerate(names))})


def celeba(folder: Path, count: int = 7) -> Path:
    """Aligned pictures, all to train but the last two."""
    names = [f"{i + 1:06d}.jpg" for i in range(count)]
    rows = {
        "list_attr_celeba": ("Smiling Male", lambda i: f"{1 if i % 2 else -1} {1 if i % 3 else -1}"),
        "list_bbox_celeba": ("image_id x_1 y_1 width height", lambda i: f"{i} 2 10 11"),
        "list_landmarks_align_celeba": ("lefteye_x lefteye_y nose_x nose_y", lambda i: f"{i} 5 6 7"),
    }
    files = pictures(*(f"img_align_celeba/{name}" for name in names))
    for name, (titles, numbers) in rows.items():
        lines = [f"{picture_name}  {numbers(i)}" for i, picture_name in enumerate(names)]
        files[f"{name}.txt"] = "\n".join([str(count), titles, *lines]) + "\n"
    files["list_eval_partition.txt"] = "".join(f"{name} {max(0, i - count + 3)}\n" for i, name in enumerate(names))
    files["identity_CelebA.txt"] = "".join(f"{name} {i + 100}\n" for i, name in enumerate(names))
    return tree(folder, files)


def tiny_imagenet(folder: Path, count: int = 4) -> Path:
    """Two classes to train, whose numbers are not in their order; pictures to validate and to test."""
    wnids = ("n02", "n01")
    files: Files = {"wnids.txt": "n02\nn01\n", "words.txt": "n01\tfish\nn02\tshark\n"}
    for wnid in wnids:
        names = [f"{wnid}_{i}.JPEG" for i in range(count)]
        files |= pictures(*(f"train/{wnid}/images/{name}" for name in names))
        files[f"train/{wnid}/{wnid}_boxes.txt"] = "".join(f"{name}\t{i}\t1\t9\t8\n" for i, name in enumerate(names))
    names = [f"val_{i}.JPEG" for i in range(count)]
    files |= pictures(*(f"val/images/{name}" for name in names), *(f"test/images/test_{i}.JPEG" for i in range(count)))
    files["val/val_annotations.txt"] = "".join(
        f"{name}\t{wnids[i % 2]}\t0\t1\t{5 + i}\t6\n" for i, name in enumerate(names)
    )
    return tree(folder, files)


def cub(folder: Path, count: int = 7) -> Path:
    """Two classes; every third picture is to test."""
    classes = ("001.Black_footed_Albatross", "002.Laysan_Albatross")
    names = [f"{classes[i % 2]}/{i}.jpg" for i in range(count)]
    lists = {
        "images": names,
        "image_class_labels": [str(1 + i % 2) for i in range(count)],
        "train_test_split": [str(int(i % 3 != 2)) for i in range(count)],
        "bounding_boxes": [f"{i}.0 2.0 10.0 11.5" for i in range(count)],
    }
    files = pictures(*(f"images/{name}" for name in names))
    for name, values in lists.items():
        files[f"{name}.txt"] = "".join(f"{i + 1} {value}\n" for i, value in enumerate(values))
    files["classes.txt"] = "".join(f"{i + 1} {name}\n" for i, name in enumerate(classes))
    return tree(folder, files)


def idx_bytes(array: np.ndarray) -> bytes:
    """An array as idx has it."""
    kinds = {"uint8": 8, "int8": 9, "int16": 11, "int32": 12, "float32": 13, "float64": 14}
    head = struct.pack(f">HBB{array.ndim}I", 0, kinds[array.dtype.name], array.ndim, *array.shape)
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


def mnist_arrays(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (n, 5, 4) and labels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 5, 4)).astype(np.uint8)
    return pixels, (np.arange(count) % 10).astype(np.uint8)


def mnist(folder: Path, count: int = 7) -> Path:
    """Two parts, not compressed."""
    files: Files = {}
    for seed, part in enumerate(("train", "t10k")):
        pixels, labels = mnist_arrays(count, seed)
        files[f"{part}-images-idx3-ubyte"] = idx_bytes(pixels)
        files[f"{part}-labels-idx1-ubyte"] = idx_bytes(labels)
    return tree(folder, files)


def cityscapes(folder: Path, count: int = 4) -> Path:
    """Two towns to train, one to validate, with all files of annotations."""
    files: Files = {}
    for part, towns in (("train", ("aachen", "bonn")), ("val", ("ulm",))):
        for town in towns:
            stems = [f"{town}_{i:06d}_000019" for i in range(count)]
            files |= pictures(*(f"leftImg8bit/{part}/{town}/{stem}_leftImg8bit.png" for stem in stems))
            for kind in ("labelIds", "instanceIds", "color"):
                files |= pictures(*(f"gtFine/{part}/{town}/{stem}_gtFine_{kind}.png" for stem in stems), mode="L")
            files |= {f"gtFine/{part}/{town}/{stem}_gtFine_polygons.json": "{}" for stem in stems}
    return tree(folder, files)


def ade20k(folder: Path, count: int = 7) -> Path:
    """Pictures and annotations of two parts, and the scene of each."""
    files: Files = {"objectInfo150.txt": "Idx\tRatio\n"}
    scenes = ""
    for part, short in (("training", "train"), ("validation", "val")):
        stems = [f"ADE_{short}_{i:08d}" for i in range(count)]
        files |= pictures(*(f"images/{part}/{stem}.jpg" for stem in stems))
        files |= pictures(*(f"annotations/{part}/{stem}.png" for stem in stems), mode="L")
        scenes += "".join(f"{stem} {('street', 'bedroom')[i % 2]}\n" for i, stem in enumerate(stems))
    return tree(folder, {**files, "sceneCategories.txt": scenes})


OPEN_IMAGES_TITLES = (
    "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside"
)


def open_images(folder: Path, count: int = 7) -> Path:
    """Pictures of ids with two boxes each, and the names of their classes; returns the .csv."""
    ids = [f"{i:016x}" for i in range(count)]
    rows = [f"{each},xclick,/m/0{k},1,0.1,0.5,0.25,0.75,{k},0,0,0,0" for each in ids for k in (2, 1)]
    tree(
        folder,
        {
            **pictures(*(f"validation/{each}.jpg" for each in ids)),
            "validation-annotations-bbox.csv": "\n".join([OPEN_IMAGES_TITLES, *rows]) + "\n",
            "class-descriptions-boxable.csv": '/m/01,Dog\n/m/02,"Cat, big"\n',
        },
    )
    return folder / "validation-annotations-bbox.csv"


def lvis(folder: Path, count: int = 7) -> Path:
    """Images with an address and no name; returns the JSON."""
    names = [f"{i:012d}.jpg" for i in range(count)]
    images = [
        {"id": i, "coco_url": f"http://images.cocodataset.org/val2017/{name}", "width": WIDTH, "height": HEIGHT}
        for i, name in enumerate(names)
    ]
    annotations = [
        {"id": i, "image_id": i, "category_id": 1, "bbox": [1, 2, 3, 4], "segmentation": [[1, 2, 3, 4, 5, 6]]}
        for i in range(count)
    ]
    said = {"info": {}, "images": images, "annotations": annotations, "categories": [{"id": 1, "name": "bee"}]}
    tree(folder, {**pictures(*(f"val2017/{name}" for name in names)), "lvis_v1_val.json": json.dumps(said)})
    return folder / "lvis_v1_val.json"


def class_files(folder: Path, suffix: str = ".wav", count: int = 4) -> Path:
    """Two classes of files that are no pictures."""
    return tree(folder, {f"{name}/{i}{suffix}": f"{name}{i}" * (i + 1) for name in "ba" for i in range(count)})
