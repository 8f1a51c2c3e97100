"""A text is blank if it is nothing but white space, by Unicode's property White_Space.

Neither engine's own trimming is that: Spark's takes away spaces alone, Python's four control characters as well.
"""

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import Column

_CODES = (*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)
WHITE_SPACE = "".join(map(chr, _CODES))


def is_blank(texts: pa.Array) -> pa.Array:
    """Whether each text is blank; NULL for NULL."""
    return pc.equal(pc.utf8_trim(texts, characters=WHITE_SPACE), "")


def blank(text: "Column") -> "Column":
    """Whether a text is blank; NULL for NULL."""
    from pyspark.sql import functions as F

    return F.btrim(text, F.lit(WHITE_SPACE)) == ""
