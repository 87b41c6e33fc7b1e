"""Codecs for tests: one whose rows can be kept as they are, one whose rows can be mutated."""

import json


class Text:
    """Strings, in UTF-8; a string that has none (half a surrogate pair) is encoded at once, so that it fails in put."""

    def encode(self, value):
        return value.encode()

    def decode(self, data):
        return data.decode()

    def stable(self, value):
        return type(value) is str and value.isascii()


class Json:
    """Lists and dictionaries, and what they may hold; nothing but strings is kept."""

    def encode(self, value):
        return json.dumps(value).encode()

    def decode(self, data):
        return json.loads(data)

    def stable(self, value):
        return type(value) is str
