"""What a return distribution is worth, and prices that change over time. Knows samples and numbers, never agents."""

from typing import TYPE_CHECKING

from vpac._lazy import lazily

if TYPE_CHECKING:
    from vpac.risk.schedules import Constant, Exponential, Linear, RobbinsMonro, Schedule, WarmUp, as_schedule

__all__ = ["Constant", "Exponential", "Linear", "RobbinsMonro", "Schedule", "WarmUp", "as_schedule"]

__getattr__, __dir__ = lazily(__name__, dict.fromkeys(__all__, "vpac.risk.schedules"))
