"""A step that exists once per topic: `dg.multi_asset`, made cheap enough to be made 2,100 times."""

import inspect
from collections.abc import Callable
from typing import Any

import dagster as dg


def topic_step(**definition: Any) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """`dg.multi_asset` for a function whose signature is worked out once, not the sixteen times that Dagster asks."""

    def define(function: Callable[..., Any]) -> dg.AssetsDefinition:
        function.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        return dg.multi_asset(**definition)(function)

    return define
