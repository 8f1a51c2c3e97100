import os
import subprocess
import sys
from pathlib import Path

import pytest

from leanops.errors import JavaMissing
from leanops_resources.spark.java import require_java

ROOT = Path(__file__).parents[2]

NEW_ENOUGH = [
    'openjdk version "17.0.9" 2023-10-17',
    'openjdk version "17" 2021-09-14',
    'openjdk version "17-ea" 2021-09-14',
    'openjdk version "21.0.1" 2023-10-17 LTS',
    'java version "25" 2025-09-16',
    'Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.9" 2023-10-17\nOpenJDK Runtime Environment',
]

TOO_OLD = [
    ('java version "1.8.0_392"', "is 8."),
    ('openjdk version "1.8.0"', "is 8."),
    ('openjdk version "9.0.4"', "is 9."),
    ('openjdk version "11.0.21" 2023-10-17', "is 11."),
    ('openjdk version "11"', "is 11."),
    ('openjdk version "16.0.2"', "is 16."),
]

DOES_NOT_RUN = {
    "fails": "#!/bin/sh\necho 'openjdk version \"17\"' >&2\nexit 1\n",
    "says nothing": "#!/bin/sh\n",
    "says nonsense": "#!/bin/sh\necho 'This is not Java.' >&2\n",
    "says no text": "#!/bin/sh\nprintf '\\377\\376' >&2\n",
    "asks for an interpreter that is not there": "#!/no/such/interpreter\n",
    "is no program": "\x7fELF",
    "needs a library": "#!/bin/sh\necho 'error while loading shared libraries: libjli.so' >&2\nexit 127\n",
}

INSTALLERS = [
    ("apt-get", "sudo apt-get install -y openjdk-17-jre-headless"),
    ("dnf", "sudo dnf install -y java-17-openjdk-headless"),
    ("apk", "sudo apk add openjdk17-jre-headless"),
    ("brew", "brew install openjdk@17"),
]


@pytest.fixture(autouse=True)
def _no_java_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)


def program(path: Path, script: str = "#!/bin/sh\n") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    path.chmod(0o755)
    return str(path)


def java_that_says(path: Path, text: str) -> str:
    return program(path, f"#!/bin/sh\n[ \"$*\" = -version ] || exit 2\n/bin/cat >&2 <<'END'\n{text}\nEND\n")


@pytest.mark.parametrize("says", NEW_ENOUGH)
def test_a_java_that_is_new_enough_is_taken(says: str, tmp_path: Path) -> None:
    java = java_that_says(tmp_path / "bin" / "java", says)
    assert require_java() == java


@pytest.mark.parametrize(("says", "version"), TOO_OLD)
def test_a_java_that_is_too_old_is_told_by_its_version(says: str, version: str, tmp_path: Path) -> None:
    java = java_that_says(tmp_path / "bin" / "java", says)
    with pytest.raises(JavaMissing) as caught:
        require_java()
    assert f"Spark needs Java 17 or newer, and {java} {version}" in caught.value.problem


def test_without_any_java_that_is_what_is_said() -> None:
    with pytest.raises(JavaMissing, match=r"Spark needs Java 17 or newer, and there is no java here\."):
        require_java()


def test_a_file_that_may_not_be_run_is_no_java(tmp_path: Path) -> None:
    Path(java_that_says(tmp_path / "bin" / "java", 'openjdk version "17"')).chmod(0o644)
    with pytest.raises(JavaMissing, match="there is no java here"):
        require_java()


@pytest.mark.parametrize("script", DOES_NOT_RUN.values(), ids=DOES_NOT_RUN.keys())
@pytest.mark.parametrize("by", ["PATH", "JAVA_HOME"])
def test_a_java_that_does_not_run_is_no_java(
    by: str, script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = program(tmp_path / "bin" / "java", script)
    if by == "JAVA_HOME":
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        monkeypatch.setenv("PATH", "")
    with pytest.raises(JavaMissing) as caught:
        require_java()
    assert java in caught.value.problem or f"JAVA_HOME ({tmp_path})" in caught.value.problem
    assert "does not run" in caught.value.problem or "is an unknown version" in caught.value.problem


def test_the_java_of_java_home_goes_before_the_one_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_that_says(tmp_path / "bin" / "java", 'openjdk version "11"')
    java = java_that_says(tmp_path / "jdk" / "bin" / "java", 'openjdk version "21"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert require_java() == java


def test_a_java_home_without_java_is_not_passed_over_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_that_says(tmp_path / "bin" / "java", 'openjdk version "17"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(JavaMissing) as caught:
        require_java()
    assert f"the one of JAVA_HOME ({tmp_path / 'gone'}) does not run" in caught.value.problem


def test_an_empty_java_home_counts_as_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = java_that_says(tmp_path / "bin" / "java", 'openjdk version "17"')
    monkeypatch.setenv("JAVA_HOME", "")
    assert require_java() == java


@pytest.mark.parametrize(("tool", "command"), INSTALLERS)
def test_the_hint_is_the_command_that_installs_java_here(tool: str, command: str, tmp_path: Path) -> None:
    program(tmp_path / "bin" / tool)
    with pytest.raises(JavaMissing) as caught:
        require_java()
    assert caught.value.hint.startswith(f"Install it with: {command}")


def test_where_no_installer_is_known_the_hint_says_what_to_install() -> None:
    with pytest.raises(JavaMissing) as caught:
        require_java()
    assert "Install a Java 17 runtime" in caught.value.hint
    assert "JAVA_HOME" in caught.value.hint


@pytest.mark.parametrize(("version", "code"), [(None, 1), ("11", 1), ("17", 0)])
def test_a_machine_with_nothing_but_python_can_ask(version: str | None, code: int, tmp_path: Path) -> None:
    if version:
        java_that_says(tmp_path / "bin" / "java", f'openjdk version "{version}"')
    asked = subprocess.run(
        # -S: without what the virtual environment has installed.
        [sys.executable, "-S", "-B", "leanops_resources/spark/java.py"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (asked.returncode, asked.stdout) == (code, "")
    assert len(asked.stderr.splitlines()) == code
    assert asked.stderr.startswith("error: Spark needs Java 17 or newer" if code else "")
