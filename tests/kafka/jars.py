"""Where `make jars` leaves the jars of the tests: beside the interpreter that runs them."""

import sys
from pathlib import Path

JARS = Path(sys.prefix) / "jars"


def jars(profile: str) -> list[Path]:
    """The jars of a profile of pom.xml: `broker` (or its older one, `broker-4.2`), `streams` or `spark`."""
    found = sorted((JARS / profile).glob("*.jar"))
    if not found:
        raise RuntimeError(f"There are no jars in {JARS / profile}: fetch them with `make jars` (JDK 17 and Maven).")
    return found
