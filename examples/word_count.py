"""How often each word occurs in lines of text.

A library receives the lines of scanned books in `lines`, from many scanners at once, and wants a running count of every
word in `word-counts`. The lines are spread over partitions with no regard to the words in them, so that one word turns
up everywhere. `group_by` sends each word through a topic of its own to the one partition that counts it; every count is
right however many partitions and workers there are. What comes out is a table in motion: each update replaces the
word's last.
"""

import re

from headwater import Str, StreamsBuilder

builder = StreamsBuilder(value=Str())

(
    builder.stream("lines")
    .flat_map_values(lambda line: re.findall(r"\w+(?:'\w+)*", line.lower()), name="split")
    .group_by(lambda key, word: word, name="by-word")
    .count(store="counts")
    .to_stream()
    .to("word-counts")
)

topology = builder.build()
