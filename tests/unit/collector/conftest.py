"""A results folder to fill, and campaigns to fill it with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from collector.campaigns import scan
from collector.layout import Layout
from collector.merge import Merged, merge
from tests.unit.collector.result_builder import CampaignBuilder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "results")


@pytest.fixture
def campaign(layout: Layout) -> CampaignBuilder:
    """A campaign as pulled from ct200, begun and empty."""
    return CampaignBuilder(layout.raw / "ct200" / "lab-small").start()


@pytest.fixture
def read(layout: Layout) -> Callable[[], Merged]:
    return lambda: merge(scan(layout))
