"""Reading facts of one GPU (or of the driver), each failure on its own.

An optional fact that can't be read is None; if that is not simply an answer ("not supported"), a :class:`Problem` tells
it. A GPU that is lost, and a session that is over, end the reading of that GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from dra_driver.errors import EnvironmentFault
from dra_driver.inventory.hardware import Problem
from dra_driver.inventory.nvml.calls import ABSENT, GPU_IS_LOST, SESSION_OVER, NvmlFailure, call

Value = TypeVar("Value")


class Reading:
    """Collects facts and problems of one GPU.

    Attributes:
        subject: how problems name the GPU; better known once its minor number is read.
        problems: what could not be read.
        session_over: a function answered that the session is of no use any more.
    """

    def __init__(self, subject: str, *, of_gpu: bool = True) -> None:
        self.subject = subject
        self._of_gpu = of_gpu
        self.problems: list[Problem] = []
        self.session_over = False

    def required(self, function: str, *arguments: Any) -> Any:
        """A fact without which the GPU can't be offered.

        Raises:
            NvmlFailure: as NVML answered.
        """
        try:
            return call(function, *arguments)
        except NvmlFailure as failure:
            self.session_over |= failure.code in SESSION_OVER
            raise

    def optional(self, what: str, function: str, *arguments: Any) -> Any:
        """A fact or None.

        Raises:
            NvmlFailure: only GPU_IS_LOST: nothing of the GPU can be used.
        """
        return self.attempt(what, lambda: call(function, *arguments))

    def attempt(self, what: str, read: Callable[[], Value]) -> Value | None:
        """The same for a fact that takes more than one call."""
        try:
            return read()
        except NvmlFailure as failure:
            if failure.code == GPU_IS_LOST and self._of_gpu:
                raise
            self.session_over |= failure.code in SESSION_OVER
            if failure.code not in ABSENT:
                self.problem(what, failure.message, failure.hint or "")
        except EnvironmentFault as fault:
            self.problem(what, fault.message, fault.hint or "")
        return None

    def problem(self, what: str, cause: str, hint: str = "") -> None:
        """Note something that is missing."""
        self.problems.append(Problem(self.subject, what, cause, hint))
