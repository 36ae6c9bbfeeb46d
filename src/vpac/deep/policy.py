"""Policies in NumPy: they act during learning, and run without JAX."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from vpac.deep.price import PriceRange
from vpac.deep.spaces import NEVER, Interface, numbers_of
from vpac.errors import UserError
from vpac.files import LARGEST_TEXT, check_format, make_folder, parse, read_bytes, read_pair, sealed, write_pair
from vpac.saved import reading, remove_record
from vpac.typing import Numbers

POLICY_FORMAT, OLDER_POLICIES = 4, (1, 2, 3)
"""Format 2: both files have checksums; 3: a policy records its memory; 4: images, masks and actions of several parts. Other
policies are written in format 3, so that earlier versions can read them."""
NOTE, NUMBERS_FILE = "policy.json", "policy.safetensors"
BOUND = 10.0
"""Normalised observations are clipped to ± this."""


ACTIVATIONS: dict[str, Callable[[Numbers], Numbers]] = {
    "tanh": lambda x: np.tanh(x, out=x),
    "relu": lambda x: np.maximum(x, 0.0, out=x),
    "silu": lambda x: x / (1.0 + np.exp(-x)),
}


def patches(x: Any, kernel: Any, stride: int) -> Any:
    """The patches of images [row, height, width, channel] under a kernel, as rows: a convolution is a product with them."""
    first, second = (
        stride * np.arange((side - size) // stride + 1)[:, None] + np.arange(size)
        for side, size in zip(x.shape[1:3], kernel.shape[:2], strict=True)
    )
    found = x[:, first[:, None, :, None], second[None, :, None, :]]
    return found.reshape(*found.shape[:3], -1)


@dataclass(frozen=True)
class NumpyPolicy:
    """A policy in plain arrays. Call it with one observation, or `act` on many."""

    interface: Interface
    weights: list[Numbers]
    biases: list[Numbers]
    activation: str
    log_std: Numbers | None
    mean: Numbers
    """Mean of observations, float32, for normalising; after them that of each channel of an image."""
    scale: Numbers
    """1 / standard deviation, likewise."""
    normalised: bool
    gamma: float
    """The discount of training."""
    prices: PriceRange | None = None
    """The range of ψ of a conditioned policy."""
    psi: float | None = None
    """The ψ at which a conditioned policy acts; None: not chosen, see `at`."""
    memory: dict[str, Any] | None = None
    """Arguments of the `RememberReturn` wrapper of training, if there was one."""
    kernels: list[Numbers] = field(default_factory=list)
    """Kernels of the encoder, [height, width, input, output]; the last covers the whole output of the one before."""
    kernel_biases: list[Numbers] = field(default_factory=list)
    strides: tuple[int, ...] = ()

    def at(self, psi: float) -> NumpyPolicy:
        """The policy at this ψ, in units of 1/reward; for a conditioned policy."""
        if self.prices is None:
            raise UserError('this policy was learned for one price of variance: psi="conditioned" gives one for many')
        return replace(self, psi=self.prices.check(psi))

    def view(self, rows: Any) -> Any:
        """Rows as inputs of the network: normalised and, for a conditioned policy, with ψ as one more column."""
        if self.prices is None:
            return self.normalise(rows)
        if self.psi is None:
            raise UserError(
                f"this policy was learned for prices of variance from {self.prices.low:g} to {self.prices.high:g}: say for "
                "which one it is to act, policy.at(psi) or --psi"
            )
        return self.prices.beside(self.normalise(rows), self.psi)

    def __call__(self, observation: Any, action_masks: Any = None) -> Any:
        """The most likely action; `action_masks` gives the allowed ones, if the policy was trained with masks."""
        if self.interface.plain and action_masks is None:
            return self.act(np.asarray(observation)[None], None, True)[0]
        return self.act(self.interface.batch(observation, (), action_masks)[0], None, True)[0]

    def normalise(self, rows: Any) -> Any:
        """Normalised rows, without ψ."""
        if self.interface.plain:
            return self._normalise(rows) if self.normalised else rows
        seen, n = rows.copy(), self.interface.inputs
        if self.normalised:
            seen["numbers"] = self._normalise(rows["numbers"])
        if self.interface.image:
            seen["levels"] = np.concatenate([self.mean[n:], self.scale[n:]])
        return seen

    def _normalise(self, rows: Numbers) -> Numbers:
        n = self.interface.inputs
        seen = rows - self.mean[:n]
        seen *= self.scale[:n]
        return np.minimum(np.maximum(seen, -BOUND, out=seen), BOUND, out=seen)  # np.clip takes three times as long

    def outputs(self, rows: Any) -> Any:
        """The network's outputs for normalised rows: means or logits, with very low logits for masked actions."""
        f, x = ACTIVATIONS[self.activation], numbers_of(rows)
        if self.kernels:
            x = np.concatenate([self._features(rows["pixels"], rows["levels"]), x], axis=-1)
        for W, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = x @ W
            x += b
            x = f(x)
        x = x @ self.weights[-1]
        x += self.biases[-1]
        return np.where(rows["allowed"], x, np.float32(NEVER)) if self.interface.masked else x

    def _features(self, pixels: Any, levels: Numbers) -> Any:
        """Features of images."""
        mean, scale = np.split(levels[:, None, None], 2, axis=-1)
        x = np.clip((pixels - mean) * scale, -BOUND, BOUND)
        for W, b, stride in zip(self.kernels, self.kernel_biases, self.strides, strict=True):
            x = np.maximum(patches(x, W, stride) @ W.reshape(-1, W.shape[3]) + b, 0.0)
        return x.reshape(len(x), -1)

    def sample(self, outputs: Numbers, noise: Numbers) -> Any:
        """Actions from outputs: the mean plus its noise, or the argmax of logits plus noise."""
        noisy = outputs + noise
        return self.interface.choose(noisy) if self.log_std is None else noisy

    def noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Numbers:
        """The noise of `sample` for a batch shape: Gumbel noise for logits, standard deviation · normal noise for means."""
        if self.log_std is None:
            return generator.gumbel(size=(*shape, self.interface.actions)).astype(np.float32)
        spread: Numbers = np.exp(self.log_std)
        return spread * generator.standard_normal((*shape, self.interface.actions), dtype=np.float32)

    def act(self, observations: Any, generator: np.random.Generator | None, deterministic: bool = False) -> Any:
        """Actions for a batch of observations, as the environment takes them."""
        outputs = self.outputs(self.view(self.interface.rows(observations)))
        if deterministic or generator is None:
            chosen = self.interface.choose(outputs) if self.log_std is None else outputs
        else:
            chosen = self.sample(outputs, self.noise(generator, (len(outputs),)))
        return self.interface.commands(chosen)

    def save(self, folder: Path | str) -> Path:
        """Write it as policy.json and policy.safetensors."""
        from safetensors.numpy import save as as_bytes

        folder = Path(folder)
        make_folder(folder)
        content = as_bytes({name: np.ascontiguousarray(array) for name, array in self.arrays().items()})
        earlier = self.interface.plain and not self.interface.choices
        about = {
            "format": OLDER_POLICIES[-1] if earlier else POLICY_FORMAT, "sha256": hashlib.sha256(content).hexdigest(),
            "interface": self.interface.fields(), "layers": len(self.weights),
            "activation": self.activation, "normalised": self.normalised, "gamma": self.gamma,
        }  # fmt: skip
        if self.kernels:
            about["strides"] = self.strides
        if self.prices is not None:
            about |= {"psi_range": [self.prices.low, self.prices.high], "psi": self.psi}
        if self.memory is not None:
            about["memory"] = self.memory
        remove_record(folder)
        write_pair(folder / NUMBERS_FILE, content, folder / NOTE, sealed(about, indent=1))
        return folder

    def export(self, path: Path | str) -> Path:
        """Write it for programs without Python: policy.onnx (extra `export`), or policy.h, a C header."""
        from vpac.deep.deploy import export

        return export(self, path)

    def arrays(self) -> dict[str, Numbers]:
        """Its numbers by name, for files; `layers_of` takes them back."""
        found = {"mean": self.mean, "scale": self.scale}
        lists = {
            "weight": self.weights, "bias": self.biases, "kernel": self.kernels, "kernel_bias": self.kernel_biases
        }  # fmt: skip
        found |= {f"{name}.{i}": array for name, arrays in lists.items() for i, array in enumerate(arrays)}
        return found if self.log_std is None else found | {"log_std": self.log_std}


def layers_of(arrays: dict[str, Any], name: str) -> list[Numbers]:
    """The arrays of all layers under a name, as `NumpyPolicy.arrays` writes them."""
    return [arrays[f"{name}.{i}"] for i in range(sum(key.rpartition(".")[0] == name for key in arrays))]


def load_policy(folder: Path | str) -> NumpyPolicy:
    """A policy that `NumpyPolicy.save` wrote; needs neither JAX nor the environment, and runs no stored code."""
    from safetensors.numpy import load as from_bytes

    folder = Path(folder)
    with reading(folder, "a policy"):
        about = _about(folder)
        sha256, path = about.get("sha256"), folder / NUMBERS_FILE
        arrays = from_bytes(read_bytes(path) if sha256 is None else read_pair(path, str(sha256)))
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in about["interface"].items()}
        interface = Interface(**fields)
        interface.check()
        layers = range(int(about["layers"]))
        found = NumpyPolicy(
            interface, [arrays[f"weight.{i}"] for i in layers], [arrays[f"bias.{i}"] for i in layers],
            about["activation"], arrays.get("log_std"), arrays["mean"], arrays["scale"],
            bool(about["normalised"]), float(about["gamma"]),
            PriceRange.read(about["psi_range"]) if "psi_range" in about else None, about.get("psi"),
            _memory(about.get("memory")), layers_of(arrays, "kernel"), layers_of(arrays, "kernel_bias"),
            tuple(about.get("strides", ())),
        )  # fmt: skip
        _check(found, arrays)
    return found


def _about(folder: Path) -> dict[str, Any]:
    """policy.json, checked."""
    text = read_bytes(folder / NOTE, LARGEST_TEXT)
    about: dict[str, Any] = parse(text)
    check_format(text, about, folder / NOTE, POLICY_FORMAT, OLDER_POLICIES)
    if about["format"] > 1 and "sha256" not in about:
        raise UserError(f"{folder} does not hold a policy: policy.json has no sha256")
    return about


def _memory(given: Any) -> dict[str, float] | None:
    """The memory of a policy, checked: arguments of `RememberReturn`."""
    if given is None:
        return None
    known = {"gamma", "bins", "low", "high", "horizon"}
    named = isinstance(given, dict) and {"gamma"} <= set(given) <= known
    numbers = dict[str, Any](given) if named else {"": True}
    if any(isinstance(x, bool) or not isinstance(x, int | float | None) for x in numbers.values()):
        raise ValueError(f"what it remembers is {given!r:.60}")
    return numbers


def _check(policy: NumpyPolicy, arrays: dict[str, Any]) -> None:
    """Raise if the layers do not fit together or numbers are not finite, instead of failing when the policy acts."""
    interface = policy.interface
    if policy.activation not in ACTIVATIONS or not policy.weights:
        raise ValueError(f"there is no activation {policy.activation!r:.40}, or no layer")
    for name, array in arrays.items():
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise ValueError(f"{name} is not made of finite numbers of 32 bits")
    features, shapes = _image_layers(policy)
    widths = [features + interface.inputs + (policy.prices is not None), *(W.shape[-1] for W in policy.weights)]
    levels = interface.inputs + (interface.sides[-1] if interface.image else 0)
    shapes |= {"mean": (levels,), "scale": (levels,)}
    shapes |= {"log_std": (interface.actions,)} | {f"bias.{i}": (width,) for i, width in enumerate(widths[1:])}
    shapes |= {f"weight.{i}": pair for i, pair in enumerate(pairwise(widths))}
    fit = all(arrays[name].shape == shape for name, shape in shapes.items() if name in arrays)
    if widths[-1] != interface.actions or not fit:
        raise ValueError("its layers do not fit together")
    if (interface.first_action is None) != (policy.log_std is not None):
        raise ValueError("its actions are neither numbers nor one of a few")


def _image_layers(policy: NumpyPolicy) -> tuple[int, dict[str, tuple[int, ...]]]:
    """Number of features of the encoder, and the expected shapes of its arrays."""
    counts = {len(policy.kernels), len(policy.kernel_biases), len(policy.strides)}
    if len(counts) != 1 or bool(policy.kernels) != bool(policy.interface.image):
        raise ValueError("its layers for images are not as many as there should be")
    if not policy.kernels:
        return 0, {}
    shapes: dict[str, tuple[int, ...]] = {}
    height, width, channels = policy.interface.sides
    for i, (W, stride) in enumerate(zip(policy.kernels, policy.strides, strict=True)):
        small = W.ndim == 4 and 1 <= W.shape[0] <= height and 1 <= W.shape[1] <= width
        if not small or type(stride) is not int or stride < 1:
            raise ValueError("its layers for images do not fit together")
        shapes |= {f"kernel.{i}": (*W.shape[:2], channels, W.shape[3]), f"kernel_bias.{i}": W.shape[3:]}
        height, width, channels = (height - W.shape[0]) // stride + 1, (width - W.shape[1]) // stride + 1, W.shape[3]
    return height * width * channels, shapes
