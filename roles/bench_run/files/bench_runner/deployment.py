"""What is deployed on this node, as the inference role describes it: one JSON file a configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, field

from bench_runner.errors import PlanError

if TYPE_CHECKING:
    from pathlib import Path

DESCRIPTION_VERSION = 1


class Deployment(Struct, frozen=True, kw_only=True):
    """A configuration as it is served. None where the deploying side doesn't know."""

    schema_version: int
    configuration: str
    unit: str
    url: str
    engine: str
    adapter: str
    served_model: str
    model: str
    tensor_parallelism: int
    engine_build: str | None = None
    model_path: str | None = None
    model_digest: str | None = None
    api_key_file: str | None = None
    draft_model: str | None = None
    draft_model_path: str | None = None
    context_tokens: int | None = None
    flags: dict[str, Any] = field(default_factory=dict)
    python: str | None = None  # the engine's own, for checks that need its libraries
    visible_gpus: str | None = None  # CUDA_VISIBLE_DEVICES of the unit

    @property
    def models(self) -> frozenset[str]:
        """What must be in memory at once."""
        return frozenset(filter(None, (self.model, self.draft_model)))


def load_deployments(folder: Path) -> dict[str, Deployment]:
    """All descriptions, by configuration."""
    if not folder.is_dir():
        raise PlanError([f"{folder}: no such folder; deploy the inference server first (deploy.yml)"])
    found: dict[str, Deployment] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            deployment = msgspec.json.decode(path.read_bytes(), type=Deployment)
        except (OSError, msgspec.DecodeError) as exc:
            raise PlanError([f"{path}: can't be read as a configuration's description: {exc}"]) from exc
        if deployment.schema_version > DESCRIPTION_VERSION:
            found_version = deployment.schema_version
            newer = f"schema_version {found_version} is newer than {DESCRIPTION_VERSION}"
            raise PlanError([f"{path}: {newer}; update the runner"])
        found[deployment.configuration] = deployment
    return found
