"""Is there a Java that Spark runs on? Known before anything is downloaded or started.

`python3 leanops_resources/spark/java.py` asks on a machine that has nothing but Python.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from leanops.errors import JavaMissing, LeanOpsError

OLDEST_JAVA = 17
_INSTALL = {
    "apt-get": "sudo apt-get install -y openjdk-17-jre-headless",
    "dnf": "sudo dnf install -y java-17-openjdk-headless",
    "apk": "sudo apk add openjdk17-jre-headless",
    "brew": "brew install openjdk@17 && export JAVA_HOME=$(brew --prefix openjdk@17)",
}


def require_java() -> str:
    """The `java` that will run Spark, or `JavaMissing` with the command that installs one."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None:
        raise JavaMissing(f"Spark needs Java {OLDEST_JAVA} or newer, and there is no java here.", _how_to_install())
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        where = f"JAVA_HOME ({home})" if home else java
        raise JavaMissing(
            f"Spark needs Java {OLDEST_JAVA} or newer, and the one of {where} does not run.", _how_to_install()
        ) from None
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    if version is None or int(version[1]) < OLDEST_JAVA:
        found = version[1] if version else "an unknown version"
        raise JavaMissing(f"Spark needs Java {OLDEST_JAVA} or newer, and {java} is {found}.", _how_to_install())
    return java


def _how_to_install() -> str:
    command = next((command for tool, command in _INSTALL.items() if shutil.which(tool)), None)
    if command is None:
        return f"Install a Java {OLDEST_JAVA} runtime for {platform.system()} and set JAVA_HOME."
    return f"Install it with: {command}"


if __name__ == "__main__":
    try:
        require_java()
    except LeanOpsError as error:
        sys.exit(f"error: {error}")
