"""Policies for other programs: an ONNX graph, or a C header without dependencies.

Both compute what `NumpyPolicy.act` computes for the most likely action, from the raw observation to the environment's action:

    observation → rows and image features → normalise → append ψ (conditioned policies) → layers
    → logits of masked actions are −1e9 → argmax of each part of an action, or the mean within its bounds

Each step is one function for each of the two formats, in this order.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vpac._version import __version__
from vpac.deep.policy import BOUND, NumpyPolicy
from vpac.deep.spaces import NEVER
from vpac.envs.observations import MASK
from vpac.errors import UserError, needs_extra
from vpac.files import write_bytes
from vpac.typing import Numbers

if TYPE_CHECKING:
    import onnx

OPSET, IR = 17, 8
"""Versions of the operators and of the file format, which runtimes since 2022 read."""
C_ACTIVATIONS = {"tanh": "tanhf(x)", "relu": "x > 0.0f ? x : 0.0f", "silu": "x / (1.0f + expf(-x))"}


def export(policy: NumpyPolicy, path: Path | str) -> Path:
    """Write a policy as .onnx (extra `export`) or as .h, a C header."""
    path = Path(path)
    if path.suffix not in (".onnx", ".h"):
        raise UserError(f"cannot export to {path.name!r}: expected a name that ends in .onnx or .h")
    return write_bytes(path, onnx_bytes(policy) if path.suffix == ".onnx" else c_header(policy, path.stem).encode())


class _Graph:
    """Nodes and constants of an ONNX graph. A step takes the name of a value and returns the name of its result."""

    def __init__(self) -> None:
        try:
            from onnx import helper, numpy_helper
        except ModuleNotFoundError as error:
            raise needs_extra("an ONNX file", error, "export", "; a .h file needs nothing") from None
        self.helper, self.arrays = helper, numpy_helper
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, array: Any) -> str:
        """Add a constant; return its name."""
        name = f"c{len(self.constants)}"
        self.constants.append(self.arrays.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, operator: str, *inputs: Any, output: str = "", **attributes: Any) -> str:
        """Add a node; inputs are names of values, or arrays."""
        name = output or f"x{len(self.nodes)}"
        known = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        self.nodes.append(self.helper.make_node(operator, known, [name], **attributes))
        return name


def onnx_bytes(policy: NumpyPolicy) -> bytes:
    """The policy as an ONNX model.

    Inputs: `observation`, float32 [batch, numbers] or int64 [batch], as the environment gives it. With an image or a mask there
    is an input for each key of the observations of `vpac.envs.arranged(env)`: `vector`, as above; `image`, uint8 or float32,
    [batch, …] in the environment's shape; `action_mask`, bool [batch, actions]. `psi`, float32 [batch], of conditioned policies
    without a chosen ψ. Outputs: `action`, the most likely one; `logits`, or `mean` and `std`, to draw one.
    """
    graph = _Graph()
    import onnx

    helper, inputs = graph.helper, _inputs(policy)
    parts = [_features(graph, policy)] if policy.kernels else []
    if policy.interface.inputs:
        vector = "observation" if policy.interface.plain else "vector"
        parts.append(_normalised(graph, policy, _rows(graph, policy, vector)))
    if policy.prices is not None:
        parts.append(_price(graph, policy, next(iter(inputs))))
    x = _layers(graph, policy, graph.add("Concat", *parts, axis=1) if len(parts) > 1 else parts[0])
    if policy.interface.masked:
        x = graph.add("Where", MASK, x, np.float32(NEVER))
    kind = helper.np_dtype_to_tensor_dtype
    takes = [
        helper.make_tensor_value_info(name, kind(np.dtype(dtype)), ["batch", *shape])
        for name, (dtype, shape) in inputs.items()
    ]
    made = helper.make_graph(graph.nodes, "policy", takes, _actions(graph, policy, x), graph.constants)
    model: onnx.ModelProto = helper.make_model(
        made, ir_version=IR, opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="vpac", producer_version=__version__,
    )  # fmt: skip
    helper.set_model_props(model, _about(policy))
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


def _inputs(policy: NumpyPolicy) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """The names of the graph's inputs, with the type of each and its shape after the batch axis."""
    interface, found = policy.interface, dict[str, tuple[Any, tuple[int, ...]]]()
    if interface.inputs:
        whole = interface.discrete_observations
        kind: Any = (np.int64, ()) if whole else (np.float32, (interface.inputs,))
        found["observation" if interface.plain else "vector"] = kind
    if interface.image:
        found["image"] = (interface.pixels, interface.image)
    if interface.masked:
        found[MASK] = (np.bool_, (interface.actions,))
    return found | ({"psi": (np.float32, ())} if policy.prices is not None and policy.psi is None else {})


def _features(graph: _Graph, policy: NumpyPolicy) -> str:
    """Features of the image, after normalising each channel; in ONNX channels come first."""
    interface = policy.interface
    height, width, channels = interface.sides
    x = graph.add("Cast", "image", to=graph.helper.np_dtype_to_tensor_dtype(np.dtype(np.float32)))
    if len(interface.image) > 2 and not interface.channels_first:
        last = len(interface.image)
        x = graph.add("Transpose", x, perm=[*range(last - 2), last, last - 2, last - 1])
    x = graph.add("Reshape", x, np.array([-1, channels, height, width], np.int64))
    mean, scale = (level[interface.inputs :, None, None] for level in (policy.mean, policy.scale))
    x = graph.add("Mul", graph.add("Sub", x, mean), scale)
    x = graph.add("Clip", x, np.float32(-BOUND), np.float32(BOUND))
    for W, b, stride in zip(policy.kernels, policy.kernel_biases, policy.strides, strict=True):
        x = graph.add("Relu", graph.add("Conv", x, W.transpose(3, 2, 0, 1), b, strides=[stride, stride]))
    return graph.add("Flatten", graph.add("Transpose", x, perm=[0, 2, 3, 1]))


def _rows(graph: _Graph, policy: NumpyPolicy, x: str) -> str:
    """Observations as rows of numbers: a Discrete one is one-hot."""
    interface = policy.interface
    if interface.first_observation is None:
        return x
    place = graph.add("Sub", x, np.array(interface.first_observation, np.int64))
    return graph.add("OneHot", place, np.array([interface.inputs], np.int64), np.array([0.0, 1.0], np.float32))


def _normalised(graph: _Graph, policy: NumpyPolicy, x: str) -> str:
    """(x − mean) · scale, kept within ± BOUND."""
    if not policy.normalised:
        return x
    n = policy.interface.inputs
    seen = graph.add("Mul", graph.add("Sub", x, policy.mean[:n]), policy.scale[:n])
    return graph.add("Clip", seen, np.float32(-BOUND), np.float32(BOUND))


def _price(graph: _Graph, policy: NumpyPolicy, counted: str) -> str:
    """ψ as a column, as in `PriceRange.beside`: (√ψ − √low) / (√high − √low), scaled to −1 … 1.

    The input `counted` gives the number of rows.
    """
    prices = policy.prices
    assert prices is not None
    low, high = prices.low**0.5, prices.high**0.5
    slope, offset = np.float32(2.0 / (high - low)), np.float32(-2.0 * low / (high - low) - 1.0)
    if policy.psi is None:
        psi = graph.add("Unsqueeze", "psi", np.array([1], np.int64))
    else:
        count = graph.add("Slice", graph.add("Shape", counted), *(np.array([i], np.int64) for i in (0, 1)))
        shape = graph.add("Concat", count, np.array([1], np.int64), axis=0)
        psi = graph.add("Expand", np.array([[policy.psi]], np.float32), shape)
    return graph.add("Add", graph.add("Mul", graph.add("Sqrt", psi), slope), offset)


def _layers(graph: _Graph, policy: NumpyPolicy, x: str) -> str:
    """x W + b with an activation between layers."""
    for layer, (W, b) in enumerate(zip(policy.weights, policy.biases, strict=True)):
        x = graph.add("Gemm", x, W, b)
        if layer == len(policy.weights) - 1:
            break
        if policy.activation == "silu":
            x = graph.add("Mul", x, graph.add("Sigmoid", x))
        else:
            x = graph.add({"tanh": "Tanh", "relu": "Relu"}[policy.activation], x)
    return x


def _actions(graph: _Graph, policy: NumpyPolicy, x: str) -> list[Any]:
    """The action as the environment takes it, and the parameters of its distribution."""
    interface, info, kind = policy.interface, graph.helper.make_tensor_value_info, graph.helper.np_dtype_to_tensor_dtype
    numbers = kind(np.dtype(np.float32))
    if policy.log_std is None:
        chosen = np.dtype(interface.integers or np.int64)
        if interface.choices:
            padded = graph.add("Pad", x, np.array([0, 0, 0, 1], np.int64), np.float32(-np.inf))
            each = graph.add(
                "Gather", padded, np.where(interface.table < 0, interface.actions, interface.table), axis=1
            )
            best = graph.add("ArgMax", each, axis=2, keepdims=0)
            best = graph.add("Cast", graph.add("Add", best, np.array(interface.low, np.int64)), to=kind(chosen))
            graph.add("Reshape", best, np.array([-1, *interface.shape], np.int64), output="action")
        else:
            best = graph.add("ArgMax", x, axis=1, keepdims=0)
            graph.add("Add", best, np.array(interface.first_action, np.int64), output="action")
        graph.add("Identity", x, output="logits")
        return [
            info("action", kind(chosen), ["batch", *interface.shape]),
            info("logits", numbers, ["batch", interface.actions]),
        ]
    low, high = (np.array(side, np.float32) for side in (interface.low, interface.high))
    bounded = graph.add("Min", graph.add("Max", x, low), high)
    whole = np.dtype(interface.integers or np.float32)
    if interface.integers:
        bounded = graph.add("Cast", graph.add("Round", bounded), to=kind(whole))
    graph.add("Reshape", bounded, np.array([-1, *interface.shape], np.int64), output="action")
    graph.add("Identity", x, output="mean")
    graph.add("Identity", np.exp(policy.log_std), output="std")
    return [
        info("action", kind(whole), ["batch", *interface.shape]),
        info("mean", numbers, ["batch", interface.actions]),
        info("std", numbers, [interface.actions]),
    ]


def _about(policy: NumpyPolicy) -> dict[str, str]:
    """Metadata for a program that runs the policy."""
    about = {"gamma": f"{policy.gamma!r}"}
    if policy.prices is not None:
        about |= {"psi_range": f"{policy.prices.low!r} {policy.prices.high!r}"}
        about |= {} if policy.psi is None else {"psi": f"{policy.psi!r}"}
    if policy.memory is not None:
        about["memory"] = (
            "the observation has the elapsed steps and the return so far, as vpac.envs.RememberReturn adds them"
        )
    return about


def c_header(policy: NumpyPolicy, stem: str) -> str:
    """The policy as a C header, `policy.h.j2`; its functions begin with the name of the file."""
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=loader, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )  # fmt: skip
    name = re.sub(r"\W", "_", stem, flags=re.ASCII)
    name = name if re.match(r"[A-Za-z]", name) else f"policy_{name}"
    interface, arguments, shapes = policy.interface, _c_arguments(policy), _c_shapes(policy)
    widths = [policy.weights[0].shape[0], *(W.shape[1] for W in policy.weights)]
    height, width, channels = interface.sides if interface.image else (0, 0, 0)
    kind = "numbers of an action"
    if interface.discrete_actions:
        kind = f"values of the {len(interface.choices)} parts of an action" if interface.choices else "actions"
    sizes = {
        "INPUTS": interface.inputs, "PIXELS": height * width * channels, "ACTIONS": interface.actions,
        "PARTS": len(interface.choices),
    }  # fmt: skip
    low, high = (0.0, 0.0) if policy.prices is None else (policy.prices.low**0.5, policy.prices.high**0.5)
    return environment.get_template("policy.h.j2").render(
        policy=policy, interface=interface, name=name, NAME=name.upper(), version=__version__, arguments=arguments,
        kind=kind, outputs="logits." if interface.discrete_actions else "the mean of the action.",
        note="; ".join(f"{key}: {value}" for key, value in _about(policy).items()),
        takes=", ".join(arguments), gives=", ".join(argument.split()[-1].lstrip("*") for argument in arguments),
        sizes={key: value for key, value in sizes.items() if value}, widths=widths, layers=len(policy.weights),
        arrays={key: [_c_float(x) for x in np.asarray(array, np.float32).ravel()] for key, array in _constants(policy).items()},
        numbered=lambda key, count: ", ".join(f"{name}_{key}_{i}" for i in range(count)),
        widest=max(*widths, sizes["PIXELS"], *(math.prod(shape[6:]) for shape in shapes)), shapes=shapes,
        activation=C_ACTIVATIONS[policy.activation], pixels=height * width, channels=channels, place=_c_place(policy),
        bound=BOUND, before=f"{math.prod(shapes[-1][6:])} + " if shapes else "", never=_c_float(NEVER),
        psi="psi" if policy.psi is None else _c_float(policy.psi), low_root=_c_float(low), root_range=_c_float(high - low),
        ends=np.cumsum((0, *interface.choices)).tolist(),
    )  # fmt: skip


def _c_arguments(policy: NumpyPolicy) -> dict[str, str]:
    """Arguments of the functions, each with a sentence about it."""
    interface, found = policy.interface, dict[str, str]()
    if interface.discrete_observations:
        found["long observation"] = "observation: a whole number, as the environment gives it."
    elif interface.inputs:
        found["const float *observation"] = f"observation: {interface.inputs} numbers, as the environment gives them."
    if interface.image:
        kind, shape = "unsigned char" if interface.pixels == "uint8" else "float", " x ".join(map(str, interface.image))
        found[f"const {kind} *image"] = f"image: {shape} values, the last index the fastest."
    if interface.masked:
        mask = f"action_mask: {interface.actions} values, 0 for what is not allowed."
        found["const unsigned char *action_mask"] = mask
    if policy.prices is not None and policy.psi is None:
        found["float psi"] = "psi: the price of variance."
    return found


def _constants(policy: NumpyPolicy) -> dict[str, Numbers]:
    """The arrays of a header by name."""
    n = policy.interface.inputs
    lists = ("weight", policy.weights), ("bias", policy.biases), ("kernel", policy.kernels)
    pairs = (*lists, ("kernel_bias", policy.kernel_biases))
    arrays = {f"{name}_{i}": array for name, each in pairs for i, array in enumerate(each)}
    arrays |= {"mean": policy.mean[:n], "scale": policy.scale[:n]} if policy.normalised and n else {}
    arrays |= {"level": policy.mean[n:], "level_scale": policy.scale[n:]} if policy.interface.image else {}
    if policy.log_std is not None:
        low, high = (np.array(side) for side in (policy.interface.low, policy.interface.high))
        arrays |= {"low": low, "high": high, "std": np.exp(policy.log_std)}
    return arrays


def _c_shapes(policy: NumpyPolicy) -> list[tuple[int, ...]]:
    """Rows, columns and channels before each convolution, its kernel's rows, columns and stride, and its result's shape."""
    found, sides = [], policy.interface.sides if policy.interface.image else (0, 0, 0)
    for W, stride in zip(policy.kernels, policy.strides, strict=True):
        result = (sides[0] - W.shape[0]) // stride + 1, (sides[1] - W.shape[1]) // stride + 1, W.shape[3]
        found.append((*sides, *W.shape[:2], stride, *result))
        sides = result
    return found


def _c_place(policy: NumpyPolicy) -> str:
    """Index of channel j of pixel i in the image, as C code."""
    interface = policy.interface
    if not interface.image:
        return ""
    height, width, channels = interface.sides
    pixels, frames = height * width, interface.image[0] if len(interface.image) == 4 else 1
    if interface.channels_first:
        return f"j * {pixels} + i"
    each = channels // frames
    return f"i * {channels} + j" if frames == 1 else f"j / {each} * {pixels * each} + i * {each} + j % {each}"


def _c_float(x: Any) -> str:
    """A C literal; nine digits represent a float32 exactly."""
    if np.isinf(x):
        return "-INFINITY" if x < 0 else "INFINITY"
    text = f"{float(x):.9g}"
    return text + ("f" if re.search(r"[.e]", text) else ".0f")
