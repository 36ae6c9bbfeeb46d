"""Appendix E in four rooms: what the price, the temperature and the step sizes do to VPAC and VAAC_TD."""

from __future__ import annotations

from vpac.lab.experiments.four_rooms import LIMIT, ROOMS
from vpac.lab.experiments.spec import Arm, Claim, Experiment, Figure

BOTH = (("VPAC", "vpac", 0.015), ("VAAC_TD", "vaac-td", 0.01))
"""The algorithms whose sensitivity the paper studies, with their prices."""


def _effect(title: str, x: str, log_x: bool) -> tuple[Figure, ...]:
    shows = ("mean", "variance", "sharpe")
    return (Figure(kind="effect", title=title, shows=shows, x=x, lines="algorithm", log_x=log_x),)


PSI_EFFECT = Experiment(
    name="four-rooms/psi-effect",
    title="Four rooms: effect of the price",
    about=f"Final mean, variance and Sharpe ratio against ψ (μ for VAAC_TD), all else as in Table 2. {LIMIT}",
    paper="Appendix E, effect of the trade-off parameter",
    runs=50,
    arms=tuple(
        Arm(label=f"{name} ψ = {psi:g}", algorithm=key, settings={"psi": psi}, at={"algorithm": name, "ψ": psi})
        for name, key, _ in BOTH
        for psi in (0.0, 0.001, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05)
    ),
    figures=_effect("Effect of the price of variance", "ψ", log_x=False),
    claims=(
        Claim(
            of="paper",
            text="a price lowers VPAC's variance", where="Appendix E", paper="seen in a plot", quantity="variance",
            arm="VPAC ψ = 0.015", against="VPAC ψ = 0", below=1.0,
        ),
        Claim(
            of="paper",
            text="a price lowers VAAC_TD's variance", where="Appendix E", paper="seen in a plot", quantity="variance",
            arm="VAAC_TD ψ = 0.01", against="VAAC_TD ψ = 0", below=1.0,
        ),
    ),
    **ROOMS,
)  # fmt: skip

TEMPERATURE_EFFECT = Experiment(
    name="four-rooms/temperature-effect",
    title="Four rooms: effect of the temperature",
    about="Final mean, variance and Sharpe ratio against the temperature of the softmax, all else as in Table 2. As in the "
    f"paper's experiments the score has no factor 1/temperature. {LIMIT}",
    paper="Appendix E, effect of the temperature",
    runs=50,
    arms=tuple(
        Arm(
            label=f"{name} temperature {t:g}",
            algorithm=key,
            settings={"psi": psi, "temperature": t},
            at={"algorithm": name, "temperature": t},
        )
        for name, key, psi in BOTH
        for t in (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
    ),
    figures=_effect("Effect of the temperature", "temperature", log_x=True),
    **ROOMS,
)

SHARES = ((1.0, "1:1"), (0.2, "1:5"), (0.1, "1:10"))


def _step_arm(name: str, key: str, psi: float, w: float, z: tuple[float, str], theta: tuple[float, str]) -> Arm:
    alpha_z = w * z[0]
    return Arm(
        label=f"{name} α_w = {w:g}, α_z:α_w = {z[1]}, α_θ:α_z = {theta[1]}",
        algorithm=key,
        settings={"psi": psi, "alpha_w": w, "alpha_z": round(alpha_z, 9), "alpha_theta": round(alpha_z * theta[0], 9)},
        at={"algorithm": name, "α_w": w, "α_z : α_w": z[1], "α_θ : α_z": theta[1]},
    )


STEP_SIZES = Experiment(
    name="four-rooms/step-sizes",
    title="Four rooms: effect of the ratios of step sizes",
    about=f"Final mean, variance and Sharpe ratio for three step sizes of the value and three ratios to each of the others. "
    f"{LIMIT}",
    paper="Appendix E, step-size sensitivity",
    runs=50,
    arms=tuple(
        _step_arm(name, key, psi, w, z, theta)
        for name, key, psi in BOTH
        for w in (0.5, 0.25, 0.1)
        for z in SHARES
        for theta in SHARES
    ),
    figures=tuple(
        Figure(
            kind="effect",
            title=f"{name}: effect of the ratios of step sizes",
            shows=("mean", "variance", "sharpe"),
            x="α_z : α_w",
            lines="α_θ : α_z",
            panels="α_w",
            arms=tuple(
                _step_arm(name, key, psi, w, z, theta).label for w in (0.5, 0.25, 0.1) for z in SHARES for theta in SHARES
            ),
        )
        for name, key, psi in BOTH
    ),
    claims=(
        Claim(
            of="paper",
            text="with a large α_w, a policy ten times slower than the variance beats an equally fast one (Sharpe ratio)",
            where="Appendix E", paper="seen in a plot", quantity="sharpe", by="ratio", above=1.0,
            arm="VPAC α_w = 0.5, α_z:α_w = 1:1, α_θ:α_z = 1:10", against="VPAC α_w = 0.5, α_z:α_w = 1:1, α_θ:α_z = 1:1",
        ),
        Claim(
            of="paper",
            text="with a small α_w, the faster policy does better: it has the higher mean", where="Appendix E",
            paper="seen in a plot", quantity="mean", by="difference", above=0.0,
            arm="VPAC α_w = 0.1, α_z:α_w = 1:10, α_θ:α_z = 1:1", against="VPAC α_w = 0.1, α_z:α_w = 1:10, α_θ:α_z = 1:10",
        ),
    ),
    **ROOMS,
)  # fmt: skip

EXPERIMENTS = (PSI_EFFECT, TEMPERATURE_EFFECT, STEP_SIZES)
