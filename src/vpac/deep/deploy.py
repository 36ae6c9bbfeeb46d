"""Policies for other programs: an ONNX graph, or a C header without dependencies.

Both hold what `NumpyPolicy.act` computes for the most likely action, from the raw observation to the environment's action:

    rows → normalise → price beside it (of a conditioned policy) → layers → argmax, or the mean within its bounds

A step is one function here for each of the two, in this order.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vpac._version import __version__
from vpac.deep.policy import BOUND, NumpyPolicy
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
    if not policy.interface.plain or policy.interface.choices:
        raise UserError(
            "only policies of Box or Discrete observations and actions, without images and masks, can be exported: others act "
            "with NumPy alone, policy.save(folder) and vpac.deep.load_policy(folder)"
        )
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

    Inputs: `observation`, float32 [batch, numbers] or int64 [batch], as the environment gives it; `psi`, float32 [batch], of a
    conditioned policy whose price is open. Outputs: `action`, the most likely one; `logits`, or `mean` and `std`, to draw one.
    """
    graph = _Graph()
    import onnx

    interface, helper, kinds = policy.interface, graph.helper, onnx.TensorProto
    x = _normalised(graph, policy, _rows(graph, policy, "observation"))
    if policy.prices is not None:
        x = graph.add("Concat", x, _price(graph, policy), axis=1)
    outputs = _actions(graph, policy, _layers(graph, policy, x))
    many = [] if interface.discrete_observations else [interface.inputs]
    seen = kinds.INT64 if interface.discrete_observations else kinds.FLOAT
    inputs = [helper.make_tensor_value_info("observation", seen, ["batch", *many])]
    if policy.prices is not None and policy.psi is None:
        inputs.append(helper.make_tensor_value_info("psi", kinds.FLOAT, ["batch"]))
    made = helper.make_graph(graph.nodes, "policy", inputs, outputs, graph.constants)
    model: onnx.ModelProto = helper.make_model(
        made, ir_version=IR, opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="vpac", producer_version=__version__,
    )  # fmt: skip
    helper.set_model_props(model, _about(policy))
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


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
    seen = graph.add("Mul", graph.add("Sub", x, policy.mean), policy.scale)
    return graph.add("Clip", seen, np.float32(-BOUND), np.float32(BOUND))


def _price(graph: _Graph, policy: NumpyPolicy) -> str:
    """The price as a column, as `PriceRange.beside` writes it: (√ψ − √low) / (√high − √low), from −1 to 1."""
    prices = policy.prices
    assert prices is not None
    low, high = prices.low**0.5, prices.high**0.5
    slope, offset = np.float32(2.0 / (high - low)), np.float32(-2.0 * low / (high - low) - 1.0)
    if policy.psi is None:
        psi = graph.add("Unsqueeze", "psi", np.array([1], np.int64))
    else:
        count = graph.add("Slice", graph.add("Shape", "observation"), *(np.array([i], np.int64) for i in (0, 1)))
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
        best = graph.add("ArgMax", x, axis=1, keepdims=0)
        graph.add("Add", best, np.array(interface.first_action, np.int64), output="action")
        graph.add("Identity", x, output="logits")
        return [
            info("action", kind(np.dtype(np.int64)), ["batch"]),
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

   {seen}
   {acts}
   {outputs}
   {note} */
#ifndef {upper}_H
#define {upper}_H

#include <math.h>

#define {upper}_INPUTS {inputs}
#define {upper}_ACTIONS {actions}

{arrays}
/* {outputs} */
static inline void {name}_outputs({takes}, float *outputs)
{{
    static const int sizes[] = {{{sizes}}};
    static const float *const weights[] = {{{weights}}};
    static const float *const biases[] = {{{biases}}};
    float x[{widest}], y[{widest}];
    int layer, i, j;
{rows}{price}    for (layer = 0; layer < {layers}; layer++) {{
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
        outputs[j] = x[j];
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


def c_header(policy: NumpyPolicy, stem: str) -> str:
    """The policy as a C header; its functions begin with the name of the file."""
    name = re.sub(r"\W", "_", stem, flags=re.ASCII)
    name = name if re.match(r"[A-Za-z]", name) else f"policy_{name}"
    interface, open_price = policy.interface, policy.prices is not None and policy.psi is None
    arrays = {f"weight_{i}": W for i, W in enumerate(policy.weights)}
    arrays |= {f"bias_{i}": b for i, b in enumerate(policy.biases)}
    arrays |= {"mean": policy.mean, "scale": policy.scale} if policy.normalised else {}
    if policy.log_std is not None:
        arrays |= {"low": np.array(interface.low), "high": np.array(interface.high), "std": np.exp(policy.log_std)}
    sizes = [policy.weights[0].shape[0], *(W.shape[1] for W in policy.weights)]
    layers = range(len(policy.weights))
    discrete = interface.discrete_observations
    takes = "long observation" if discrete else "const float *observation"
    words = {
        "name": name, "upper": name.upper(), "version": __version__, "inputs": interface.inputs, "actions": interface.actions,
        "takes": takes + (", float psi" if open_price else ""), "gives": "observation" + (", psi" if open_price else ""),
        "sizes": ", ".join(map(str, sizes)), "widest": max(sizes), "layers": len(layers), "last": len(layers) - 1,
        "weights": ", ".join(f"{name}_weight_{i}" for i in layers), "biases": ", ".join(f"{name}_bias_{i}" for i in layers),
        "first": interface.first_action, "whole": "\n        action[j] = rintf(action[j]);" if interface.integers else "",
    }  # fmt: skip
    parts = {
        "arrays": _c_arrays(name, arrays) + _c_activation(policy, name),
        "rows": _c_rows(policy, name), "price": _c_price(policy),
        "seen": f"Takes {'a whole number' if discrete else f'{interface.inputs} numbers'}, the observation of the environment.",
        "acts": f"{interface.actions} " + ("actions" if interface.discrete_actions else "numbers of an action") + ".",
        "outputs": f"{name}_outputs: " + ("logits." if interface.discrete_actions else "the mean of the action."),
        "note": "; ".join(f"{key}: {value}" for key, value in _about(policy).items()),
    }  # fmt: skip
    act = (DISCRETE_ACT if interface.discrete_actions else BOX_ACT).format(**words)
    return HEADER.format(**words, **parts, act=act)


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
    """Observations as normalised numbers."""
    interface = policy.interface
    value = "observation[i]"
    if interface.first_observation is not None:
        value = f"i == observation - {interface.first_observation}L ? 1.0f : 0.0f"
    if policy.normalised:
        value = f"fminf(fmaxf((({value}) - {name}_mean[i]) * {name}_scale[i], -{BOUND}f), {BOUND}f)"
    return f"    for (i = 0; i < {interface.inputs}; i++)\n        x[i] = {value};\n"


def _c_price(policy: NumpyPolicy) -> str:
    """The price beside them, from −1 to 1."""
    if policy.prices is None:
        return ""
    low, high = policy.prices.low**0.5, policy.prices.high**0.5
    psi = "psi" if policy.psi is None else _c_float(policy.psi)
    share = f"(sqrtf({psi}) - {_c_float(low)}) / {_c_float(high - low)}"
    return f"    x[{policy.interface.inputs}] = 2.0f * {share} - 1.0f;\n"
