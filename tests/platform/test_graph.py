"""The whole graph of a small registry, written out: a change of the graph is seen in review.

`WRITE_GRAPH=1 pytest tests/platform/test_graph.py` writes the file anew.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from leanops.home import Home
from leanops_assets.definitions import defs
from tests.conftest import PROJECT

WRITTEN_OUT = Path(__file__).with_name("graph.json")


def shown(asset: Any) -> dict[str, Any]:
    return {
        "step": asset.assets_def.node_def.name if asset.is_materializable else None,
        "deps": sorted(key.to_user_string() for key in asset.parent_keys),
        "group": asset.group_name,
        "owners": list(asset.owners),
        "kinds": sorted(asset.kinds),
        "tags": {name: value for name, value in sorted(asset.tags.items()) if not name.startswith("dagster/")},
        "table": asset.metadata["dagster/table_name"],
        "code": [Path(each.file_path).name for each in asset.metadata["dagster/code_references"].code_references],
        "partitioned": isinstance(asset.partitions_def, dg.DailyPartitionsDefinition),
        "checks": sorted(check.name for check in asset.check_keys),
        "description": asset.description,
    }


def test_the_graph_is_the_one_that_was_reviewed(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_anew = os.environ.get("WRITE_GRAPH")
    for topic in ("orders", "support_chats"):
        shutil.copytree(PROJECT / "schemas" / topic, tmp_path / "contracts" / topic)
    monkeypatch.setenv("LEANOPS_SCHEMAS", str(tmp_path / "contracts"))

    definitions = defs()
    assets = definitions.resolve_asset_graph()
    repository = definitions.get_repository_def()
    graph = {
        "assets": {
            key.to_user_string(): shown(assets.get(key)) for key in sorted(assets.get_all_asset_keys(), key=str)
        },
        "jobs": sorted(job.name for job in repository.get_all_jobs() if not job.name.startswith("__")),
        "schedules": {each.name: each.cron_schedule for each in repository.schedule_defs},
        "sensors": {each.name: each.minimum_interval_seconds for each in repository.sensor_defs},
        "resources": sorted(repository.get_top_level_resources()),
    }
    if write_anew:
        WRITTEN_OUT.write_text(json.dumps(graph, indent=2, ensure_ascii=False) + "\n")
    assert graph == json.loads(WRITTEN_OUT.read_text())
