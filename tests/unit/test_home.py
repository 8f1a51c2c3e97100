from pathlib import Path

import pytest

from leanops.errors import HomeNotWritable
from leanops.home import Home


def test_all_local_state_lies_under_the_one_home(tmp_path: Path) -> None:
    home = Home(tmp_path / "a" / "b" / "home").prepare()
    parts = (home.warehouse, home.catalog, home.state, home.dagster, home.logs, home.spark, home.manifests, home.cache)
    parts += (home.landing, home.dlq_archive)
    assert all(home.path in part.parents for part in parts)
    assert len(set(parts)) == len(parts)


def test_a_home_is_its_owners_alone(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").prepare()
    assert [oct(folder.stat().st_mode & 0o777) for folder in (home.path, *home.path.iterdir())] == ["0o700"] * 8


def test_a_home_may_be_prepared_again_and_keeps_what_it_holds(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").prepare()
    (home.logs / "leanops.log").write_text("kept")
    before = sorted(home.path.rglob("*"))
    assert home.prepare() == home
    assert sorted(home.path.rglob("*")) == before
    assert (home.logs / "leanops.log").read_text() == "kept"


@pytest.mark.parametrize("place", ["file", "file/below", "dangling", "taken", "/proc/leanops"])
def test_a_home_that_cannot_be_written_is_named_with_what_to_do(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "at" / "all")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "warehouse").touch()
    with pytest.raises(HomeNotWritable) as caught:
        Home(tmp_path / place).prepare()
    assert str(tmp_path / place) in caught.value.problem
    assert "LEANOPS_HOME" in caught.value.hint
