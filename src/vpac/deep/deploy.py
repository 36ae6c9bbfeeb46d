"""Policies for other programs: an ONNX graph, or a C header without dependencies.

Both hold what `NumpyPolicy.act` computes for the most likely action, from the raw observation to the environment's action:

    rows, and the features of an image before them → normalise → price beside it (of a conditioned policy) → layers
    → what a mask forbids is −1e9 → argmax, of each part of an action, or the mean within its bounds

A step is one function here for each of the two, in this order.
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
from vpac.errors import UserError
from vpac.files import write_bytes
from vpac.typing import Numbers

if TYPE_CHECKING:
    import onnx

OPSET, IR = 17, 8
"""Versions of the operators and of the file: runtimes since 2022 read them."""
C_ACTIVATIONS = {"tanh": "tanhf(x)", "relu": "x > 0.0f ? x : 0.0f", "silu": "x / (1.0f + expf(-x))"}


def export(policy: NumpyPolicy, path: Path | str) -> Path:
    """Write a policy as .onnx (extra `export`) or as .h, a C header."""
    path = Path(path)
    if path.suffix not in (".onnx", ".h"):
        raise UserError(f"cannot export to {path.name!r}: expected a name that ends in .onnx or .h")
    return write_bytes(path, onnx_bytes(policy) if path.suffix == ".onnx" else c_header(policy, path.stem).encode())


class _Graph:
    """Nodes and constants of an ONNX graph; a step takes the name of a value and returns that of its result."""

    def __init__(self) -> None:
        try:
            from onnx import helper, numpy_helper
        except ModuleNotFoundError:
            raise UserError(
                "an ONNX file needs onnx, of the extra `export`: pip install 'vpac[export]'; a .h file needs nothing"
            ) from None
        self.helper, self.arrays = helper, numpy_helper
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, array: Any) -> str:
        """The name of a constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(self.arrays.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, operator: str, *inputs: Any, output: str = "", **attributes: Any) -> str:
        """A node; inputs are names of values, or arrays."""
        name = output or f"x{len(self.nodes)}"
        known = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        self.nodes.append(self.helper.make_node(operator, known, [name], **attributes))
        return name


def onnx_bytes(policy: NumpyPolicy) -> bytes:
    """The policy as an ONNX model.

    Inputs: `observation`, float32 [batch, numbers] or int64 [batch], as the environment gives it. With an image or a mask there
    is an input for each part that `vpac.envs.arranged(env)` gives: `vector`, as above; `image`, uint8 or float32, [batch, …] in
    the shape that the environment has; `action_mask`, bool [batch, actions]. `psi`, float32 [batch], of a conditioned policy
    whose price is open. Outputs: `action`, the most likely one; `logits`, or `mean` and `std`, to draw one.
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
    """The names of the graph's inputs, with the type of each and its shape behind the batch."""
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
    """What the convolutions make of the image, each channel of it normalised; in ONNX channels come first."""
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
    """The price as a column, as `PriceRange.beside` writes it: (√ψ − √low) / (√high − √low), from −1 to 1.

    As many as there are rows in the input `counted`.
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
    """The action as the environment takes it, and what one can be drawn from."""
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
    """What a program that runs the policy may want to know."""
    about = {"gamma": f"{policy.gamma!r}"}
    if policy.prices is not None:
        about |= {"psi_range": f"{policy.prices.low!r} {policy.prices.high!r}"}
        about |= {} if policy.psi is None else {"psi": f"{policy.psi!r}"}
    if policy.memory is not None:
        about["memory"] = (
            "the observation has the elapsed steps and the return so far, as vpac.envs.RememberReturn adds them"
        )
    return about


HEADER = """\
/* A policy that vpac {version} exported: plain C99, no memory is allocated; link with -lm.

   {arguments}
   {acts}
   {outputs}
   {note} */
#ifndef {upper}_H
#define {upper}_H

#include <math.h>

{sizes_of}

{arrays}
/* {outputs} */
static inline void {name}_outputs({takes}, float *outputs)
{{
    static const int sizes[] = {{{sizes}}};
    static const float *const weights[] = {{{weights}}};
    static const float *const biases[] = {{{biases}}};
    float x[{widest}], y[{widest}];
    int layer, i, j;
{image}{rows}{price}    for (layer = 0; layer < {layers}; layer++) {{
        const int n = sizes[layer], m = sizes[layer + 1];
        for (j = 0; j < m; j++)
            y[j] = biases[layer][j];
        for (i = 0; i < n; i++)
            for (j = 0; j < m; j++)
                y[j] += x[i] * weights[layer][i * m + j];
        for (j = 0; j < m; j++)
            x[j] = layer < {last} ? {name}_activation(y[j]) : y[j];
    }}
    for (j = 0; j < {upper}_ACTIONS; j++)
        outputs[j] = {answer};
}}

{act}
#endif
"""
DISCRETE_ACT = """\
/* The most likely action. */
static inline long {name}_act({takes})
{{
    float outputs[{upper}_ACTIONS];
    int j, best = 0;
    {name}_outputs({gives}, outputs);
    for (j = 1; j < {upper}_ACTIONS; j++)
        if (outputs[j] > outputs[best])
            best = j;
    return {first}L + best;
}}
"""
PARTS_ACT = """\
/* The most likely value of each part of the action. */
static inline void {name}_act({takes}, long *action)
{{
    static const int ends[] = {{{ends}}};
    static const long low[] = {{{low}}};
    float outputs[{upper}_ACTIONS];
    int part, j, best;
    {name}_outputs({gives}, outputs);
    for (part = 0; part < {upper}_PARTS; part++) {{
        best = ends[part];
        for (j = best + 1; j < ends[part + 1]; j++)
            if (outputs[j] > outputs[best])
                best = j;
        action[part] = low[part] + best - ends[part];
    }}
}}
"""
BOX_ACT = """\
/* The most likely action, within the bounds of the environment. */
static inline void {name}_act({takes}, float *action)
{{
    int j;
    {name}_outputs({gives}, action);
    for (j = 0; j < {upper}_ACTIONS; j++) {{
        action[j] = fminf(fmaxf(action[j], {name}_low[j]), {name}_high[j]);{whole}
    }}
}}
"""
IMAGE = """\
    static const float *const kernels[] = {{{kernels}}};
    static const float *const kernel_biases[] = {{{kernel_biases}}};
    static const int shapes[][9] = {{ /* rows, columns, channels; of the kernel rows, columns, stride; of the result */
        {shapes}
    }};
    for (i = 0; i < {pixels}; i++)
        for (j = 0; j < {channels}; j++) {{
            const float seen = ((float)image[{place}] - {name}_level[j]) * {name}_level_scale[j];
            x[i * {channels} + j] = fminf(fmaxf(seen, -{bound}f), {bound}f);
        }}
    for (layer = 0; layer < {count}; layer++) {{
        const int *const s = shapes[layer];
        const int total = s[6] * s[7], m = s[8];
        int place, row, column, channel;
        for (place = 0; place < total; place++) {{
            const int top = place / s[7] * s[5], left = place % s[7] * s[5];
            const float *weight = kernels[layer];
            float *const result = y + place * m;
            for (j = 0; j < m; j++)
                result[j] = kernel_biases[layer][j];
            for (row = top; row < top + s[3]; row++)
                for (column = left; column < left + s[4]; column++)
                    for (channel = 0; channel < s[2]; channel++, weight += m)
                        for (j = 0; j < m; j++)
                            result[j] += x[(row * s[1] + column) * s[2] + channel] * weight[j];
        }}
        for (i = 0; i < total * m; i++)
            x[i] = y[i] > 0.0f ? y[i] : 0.0f;
    }}
"""


def c_header(policy: NumpyPolicy, stem: str) -> str:
    """The policy as a C header; its functions begin with the name of the file."""
    name = re.sub(r"\W", "_", stem, flags=re.ASCII)
    name = name if re.match(r"[A-Za-z]", name) else f"policy_{name}"
    interface, layers, shapes = policy.interface, range(len(policy.weights)), _c_shapes(policy)
    arguments, gives = _c_arguments(policy)
    sizes = [policy.weights[0].shape[0], *(W.shape[1] for W in policy.weights)]
    first = math.prod(interface.sides) if interface.image else 0
    defined = {"INPUTS": interface.inputs} if interface.inputs else {}
    defined |= {"PIXELS": first} if interface.image else {}
    defined |= {"ACTIONS": interface.actions} | ({"PARTS": len(interface.choices)} if interface.choices else {})
    words = {
        "name": name, "upper": name.upper(), "version": __version__,
        "takes": ", ".join(arguments), "gives": ", ".join(gives),
        "sizes_of": "\n".join(f"#define {name.upper()}_{key} {value}" for key, value in defined.items()),
        "sizes": ", ".join(map(str, sizes)), "layers": len(layers), "last": len(layers) - 1,
        "widest": max(*sizes, first, *(math.prod(shape[6:]) for shape in shapes)),
        "weights": ", ".join(f"{name}_weight_{i}" for i in layers), "biases": ", ".join(f"{name}_bias_{i}" for i in layers),
        "first": interface.first_action, "whole": "\n        action[j] = rintf(action[j]);" if interface.integers else "",
        "answer": f"action_mask[j] ? x[j] : {_c_float(NEVER)}" if interface.masked else "x[j]",
        "ends": ", ".join(map(str, np.cumsum((0, *interface.choices)))), "low": ", ".join(f"{x}L" for x in interface.low),
    }  # fmt: skip
    kind = "numbers of an action"
    if interface.discrete_actions:
        kind = f"values of the {len(interface.choices)} parts of an action" if interface.choices else "actions"
    parts = {
        "arrays": _c_arrays(name, _constants(policy)) + _c_activation(policy, name),
        "image": _c_image(policy, name, shapes), "rows": _c_rows(policy, name), "price": _c_price(policy),
        "arguments": "\n   ".join(arguments.values()), "acts": f"{interface.actions} {kind}.",
        "outputs": f"{name}_outputs: " + ("logits." if interface.discrete_actions else "the mean of the action."),
        "note": "; ".join(f"{key}: {value}" for key, value in _about(policy).items()),
    }  # fmt: skip
    act = BOX_ACT if not interface.discrete_actions else PARTS_ACT if interface.choices else DISCRETE_ACT
    return HEADER.format(**words, **parts, act=act.format(**words))


def _c_arguments(policy: NumpyPolicy) -> tuple[dict[str, str], list[str]]:
    """What the functions take, each with a sentence about it, and the names of these."""
    interface, found = policy.interface, dict[str, str]()
    if interface.discrete_observations:
        found["long observation"] = "observation: a whole number, as the environment gives it."
    elif interface.inputs:
        found["const float *observation"] = f"observation: {interface.inputs} numbers, as the environment gives them."
    if interface.image:
        kind = "unsigned char" if interface.pixels == "uint8" else "float"
        shape = " x ".join(map(str, interface.image))
        found[f"const {kind} *image"] = f"image: {shape} values, the last index the fastest."
    if interface.masked:
        found["const unsigned char *action_mask"] = (
            f"action_mask: {interface.actions} values, 0 for what is not allowed."
        )
    if policy.prices is not None and policy.psi is None:
        found["float psi"] = "psi: the price of variance."
    return found, [argument.split()[-1].lstrip("*") for argument in found]


def _constants(policy: NumpyPolicy) -> dict[str, Numbers]:
    """The arrays of a header by name."""
    interface, n = policy.interface, policy.interface.inputs
    lists = {
        "weight": policy.weights,
        "bias": policy.biases,
        "kernel": policy.kernels,
        "kernel_bias": policy.kernel_biases,
    }
    arrays = {f"{name}_{i}": array for name, each in lists.items() for i, array in enumerate(each)}
    arrays |= {"mean": policy.mean[:n], "scale": policy.scale[:n]} if policy.normalised and n else {}
    arrays |= {"level": policy.mean[n:], "level_scale": policy.scale[n:]} if interface.image else {}
    if policy.log_std is not None:
        arrays |= {"low": np.array(interface.low), "high": np.array(interface.high), "std": np.exp(policy.log_std)}
    return arrays


def _c_shapes(policy: NumpyPolicy) -> list[tuple[int, ...]]:
    """Of each convolution: rows, columns and channels, the kernel's rows, columns and stride, and of the result."""
    found, sides = [], policy.interface.sides if policy.interface.image else (0, 0, 0)
    for W, stride in zip(policy.kernels, policy.strides, strict=True):
        result = (sides[0] - W.shape[0]) // stride + 1, (sides[1] - W.shape[1]) // stride + 1, W.shape[3]
        found.append((*sides, *W.shape[:2], stride, *result))
        sides = result
    return found


def _c_image(policy: NumpyPolicy, name: str, shapes: list[tuple[int, ...]]) -> str:
    """The features of the image, at the beginning of x."""
    if not shapes:
        return ""
    interface, (height, width, channels) = policy.interface, policy.interface.sides
    pixels, frames = height * width, interface.image[0] if len(interface.image) == 4 else 1
    each = channels // frames
    place = f"i * {channels} + j" if frames == 1 else f"j / {each} * {pixels * each} + i * {each} + j % {each}"
    if interface.channels_first:
        place = f"j * {pixels} + i"
    return IMAGE.format(
        name=name, pixels=pixels, channels=channels, place=place, bound=BOUND, count=len(shapes),
        shapes=",\n        ".join(f"{{{', '.join(map(str, shape))}}}" for shape in shapes),
        kernels=", ".join(f"{name}_kernel_{i}" for i in range(len(shapes))),
        kernel_biases=", ".join(f"{name}_kernel_bias_{i}" for i in range(len(shapes))),
    )  # fmt: skip


def _c_arrays(name: str, arrays: dict[str, Numbers]) -> str:
    """Constants; nine digits are a float32 exactly."""
    lines = []
    for key, array in arrays.items():
        values = [_c_float(x) for x in np.asarray(array, np.float32).ravel()]
        rows = [", ".join(values[i : i + 8]) for i in range(0, len(values), 8)]
        lines.append(f"static const float {name}_{key}[{len(values)}] = {{\n    " + ",\n    ".join(rows) + "\n};")
    return "\n".join(lines) + "\n"


def _c_float(x: Any) -> str:
    """A literal."""
    if np.isinf(x):
        return "-INFINITY" if x < 0 else "INFINITY"
    text = f"{float(x):.9g}"
    return text + ("f" if re.search(r"[.e]", text) else ".0f")


def _c_activation(policy: NumpyPolicy, name: str) -> str:
    body = C_ACTIVATIONS[policy.activation]
    return f"\nstatic inline float {name}_activation(float x)\n{{\n    return {body};\n}}\n"


def _c_rows(policy: NumpyPolicy, name: str) -> str:
    """Observations as normalised numbers, behind the features of an image."""
    interface, before = policy.interface, _before(policy)
    if not interface.inputs:
        return ""
    value = "observation[i]"
    if interface.first_observation is not None:
        value = f"i == observation - {interface.first_observation}L ? 1.0f : 0.0f"
    if policy.normalised:
        value = f"fminf(fmaxf((({value}) - {name}_mean[i]) * {name}_scale[i], -{BOUND}f), {BOUND}f)"
    return f"    for (i = 0; i < {interface.inputs}; i++)\n        x[{before}i] = {value};\n"


def _c_price(policy: NumpyPolicy) -> str:
    """The price beside them, from −1 to 1."""
    if policy.prices is None:
        return ""
    low, high = policy.prices.low**0.5, policy.prices.high**0.5
    psi = "psi" if policy.psi is None else _c_float(policy.psi)
    share = f"(sqrtf({psi}) - {_c_float(low)}) / {_c_float(high - low)}"
    return f"    x[{_before(policy)}{policy.interface.inputs}] = 2.0f * {share} - 1.0f;\n"


def _before(policy: NumpyPolicy) -> str:
    """How many features of an image stand before the numbers, as the beginning of a sum."""
    return f"{math.prod(_c_shapes(policy)[-1][6:])} + " if policy.kernels else ""
