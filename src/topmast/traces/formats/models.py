"""Facts about the networks that public traces name: skew of tensors, training time."""

from __future__ import annotations

import math
from typing import NamedTuple


class Tensors(NamedTuple):
    """Parameters of a network, in millions: of its largest tensor, and of all."""

    largest: float
    all: float


# From the architectures as published: the first fully connected layer of AlexNet and the VGGs, the
# classifier of GoogLeNet and the Inceptions, the last 3x3 convolutions of the ResNets.
_TENSORS = {
    "alexnet": Tensors(37.75, 61.10),
    "vgg11": Tensors(102.76, 132.86),
    "vgg16": Tensors(102.76, 138.36),
    "vgg19": Tensors(102.76, 143.67),
    "googlenet": Tensors(1.02, 6.62),
    "inception3": Tensors(2.05, 23.83),
    "inception4": Tensors(1.54, 42.68),
    "resnet18": Tensors(2.36, 11.69),
    "resnet50": Tensors(2.36, 25.56),
    "resnet101": Tensors(2.36, 44.55),
    "resnet152": Tensors(2.36, 60.19),
    "shufflenet_v2_x1_0": Tensors(1.02, 2.28),
    "bert": Tensors(23.44, 109.48),
    "gpt2": Tensors(38.60, 124.44),
}


def skew_of(model: str) -> float:
    """The share of a network's parameters that its largest tensor holds; NaN if it is not known.

    Tiresias (Gu et al., NSDI '19) places jobs with a large largest tensor together.
    """
    tensors = _TENSORS.get(model.lower())
    return tensors.largest / tensors.all if tensors else math.nan


# Pollux (Qiao et al., OSDI '21, table 1) gives each application a class of total GPU time: small
# below 1 GPU-hour, medium 1-10, large 10-100, extra large 100-1,000. BERT came with Sia [class
# unverified].
_SMALL, _MEDIUM, _LARGE, _EXTRA_LARGE = (
    hours * 3600.0 for hours in (0.5, 10**0.5, 10**1.5, 10**2.5)
)
_NOMINAL_GPU_S = {
    "cifar10": _SMALL,
    "ncf": _SMALL,
    "bert": _MEDIUM,
    "deepspeech2": _MEDIUM,
    "yolov3": _LARGE,
    "imagenet": _EXTRA_LARGE,
}


def nominal_gpu_s(application: str) -> float:
    """The middle, by ratio, of the GPU time of an application's class; NaN if it is not known."""
    return _NOMINAL_GPU_S.get(application.lower(), math.nan)
