"""Payloads and whether each is exactly one RFC 8259 object that Standardized can hold.

The judge is Python's own strict parser, in `verdict`: `json` with NaN and Infinity rejected. On top of the grammar the
engine has four rules of its own, noted by kind: a name given twice, an unpaired surrogate, nesting over MAX_DEPTH, text
that is not UTF-8.
"""

import json
from dataclasses import dataclass
from typing import Any, NoReturn

MAX_DEPTH = 200


@dataclass(frozen=True)
class JsonCase:
    name: str
    payload: str
    valid: bool  # by RFC 8259's grammar, an object at the top
    rule: str | None = None  # valid by grammar, refused by a rule of ours


def _refuse_constant(token: str) -> NoReturn:
    raise ValueError(f"{token} is not JSON")


def verdict(payload: str) -> bool:
    """Whether Python's strict parser takes the payload as one object."""
    try:
        value: Any = json.loads(payload, parse_constant=_refuse_constant, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


def _deep(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


def _deep_array(levels: int) -> str:
    return '{"a":' + "[" * levels + "]" * levels + "}"


GOOD: dict[str, str] = {
    "plain": '{"a":1}',
    "empty object": "{}",
    "empty object with blanks": " { } ",
    "all four blanks": ' \t\r\n{ "a" \t:\r\n 1 } \n',
    "nested": '{"a":{"b":{"c":1}}}',
    "array": '{"a":[1, 2.50 ,{"b":null}]}',
    "null": '{"a":null}',
    "null twice spelled": '{"a": null , "b":null}',
    "booleans": '{"a":true,"b":false}',
    "empty name": '{"":1}',
    "nested empty name": '{"":{"":1}}',
    "name with dot": '{"a.b":1}',
    "name with quote": '{"a\\"b":1}',
    "name with quote and colon": '{"a\\":b":1}',
    "name with backtick": '{"a`b":1}',
    "name with blank": '{"a b":1}',
    "name with unicode": '{"größe":1,"名前":2,"😀":3}',
    "escaped name": '{"\\u0061":1}',
    "name ends in backslash": '{"a\\\\":1}',
    "all escapes": '{"a":"\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u0041"}',
    "escaped NUL": '{"a":"x\\u0000y"}',
    "surrogate pair": '{"a":"\\ud83d\\ude00"}',
    "surrogate pair upper case": '{"a":"\\uD83D\\uDE00"}',
    "DEL and C1 are no control characters in JSON": '{"a":"\x7f\x85"}',
    "line separators": '{"a":"\u2028\u2029"}',
    "U+FEFF inside a string": '{"a":"\ufeff"}',
    "noncharacter": '{"a":"\uffff"}',
    "astral": '{"a":"\U0001f600\U0010ffff"}',
    "30-digit integer": '{"a":123456789012345678901234567890}',
    "25-digit decimal": '{"a":1.1234567890123456789012345}',
    "1e400": '{"a":1e400}',
    "1E+2": '{"a":1E+2}',
    "1e-400": '{"a":1e-400}',
    "minus zero": '{"a":-0}',
    "minus zero decimal": '{"a":-0.0}',
    "zero exponent": '{"a":0e0}',
    "trailing zero": '{"a":1.10}',
    "exponent overflows an int": '{"a":1e99999999999999999999}',
    "5,000-digit integer": '{"a":' + "7" * 5000 + "}",
    "5,000-digit decimal": '{"a":0.' + "7" * 5000 + "}",
    "JSON in a string": '{"a":"{\\"b\\":1}"}',
    "array in a string": '{"a":"[{\\"b\\":1}]"}',
    "empty object as value": '{"a":{},"b":1}',
    "empty array": '{"a":[]}',
    "string that starts with a colon": '{"a":":x"}',
    "string with ': null'": '{"a":"\\": null"}',
    "2-MB string": '{"a":"' + "x" * 2_000_000 + '"}',
    "60-kB name": '{"' + "n" * 60_000 + '":1}',
    "string of 20,000 escapes": '{"a":"' + "\\n" * 20_000 + '"}',
    "100 levels": _deep(100),
    "100 levels of arrays": _deep_array(100),
    "5,000 names": "{" + ",".join(f'"k{i}":{i}' for i in range(5000)) + "}",
}

BROKEN: dict[str, str] = {
    "empty": "",
    "blank": "  ",
    "null at the top": "null",
    "true at the top": "true",
    "number at the top": "12",
    "string at the top": '"a"',
    "array at the top": "[]",
    "array of an object": '[{"a":1}]',
    "word": "hello",
    "single quotes": "{'a':'b'}",
    "single-quoted value": "{\"a\":'b'}",
    "unquoted name": "{a:1}",
    "number as name": "{1:1}",
    "null as name": "{null:1}",
    "unquoted value": '{"a":b}',
    "line comment": '{"a":1} // c',
    "block comment": '{/* c */"a":1}',
    "hash comment": '{"a":1} # c',
    "trailing comma": '{"a":1,}',
    "trailing comma in array": '{"a":[1,]}',
    "leading comma": '{,"a":1}',
    "two commas": '{"a":1,,"b":2}',
    "two commas in array": '{"a":[1,,2]}',
    "only comma": "{,}",
    "no comma": '{"a":1 "b":2}',
    "no comma in array": '{"a":[1 2]}',
    "no colon": '{"a" 1}',
    "two colons": '{"a"::1}',
    "equals": '{"a"=1}',
    "no value": '{"a":}',
    "no value, more": '{"a":,"b":1}',
    "name only": '{"a"}',
    "leading zero": '{"a":01}',
    "minus leading zero": '{"a":-01}',
    "leading zeros in array": '{"a":[00]}',
    "plus": '{"a":+1}',
    "1.": '{"a":1.}',
    ".5": '{"a":.5}',
    "-.5": '{"a":-.5}',
    "1e": '{"a":1e}',
    "1e+": '{"a":1e+}',
    "1.e1": '{"a":1.e1}',
    "1.2.3": '{"a":1.2.3}',
    "1e1.5": '{"a":1e1.5}',
    "1_000": '{"a":1_000}',
    "minus": '{"a":-}',
    "two minuses": '{"a":--1}',
    "hexadecimal": '{"a":0x1F}',
    "1a": '{"a":1a}',
    "1. in array": '{"a":[1.]}',
    "leading zero deep in array": '{"a":[{"b":[01]}]}',
    "full-width digit": '{"a":１}',
    "NaN": '{"a":NaN}',
    "Infinity": '{"a":Infinity}',
    "-Infinity": '{"a":-Infinity}',
    "NaN in array": '{"a":[NaN]}',
    "INF": '{"a":INF}',
    "True": '{"a":True}',
    "TRUE": '{"a":TRUE}',
    "None": '{"a":None}',
    "undefined": '{"a":undefined}',
    "tru": '{"a":tru}',
    "truex": '{"a":truex}',
    "nullx": '{"a":nullx}',
    "nul": '{"a":nul}',
    "nul in array": '{"a":[nul]}',
    "garbage behind": '{"a":1}x',
    "garbage behind a blank": '{"a":1} x',
    "second object": '{"a":1}{"b":2}',
    "second object on its line": '{"a":1}\n{"b":2}',
    "comma and second object": '{"a":1},{"b":2}',
    "extra brace": '{"a":1}}',
    "extra bracket": '{"a":1}]',
    "NUL behind": '{"a":1}\x00',
    "NUL before": '\x00{"a":1}',
    "NUL between": '{"a":\x001}',
    "NUL in string": '{"a":"\x00"}',
    "newline in string": '{"a":"x\ny"}',
    "tab in string": '{"a":"x\ty"}',
    "0x1f in string": '{"a":"\x1f"}',
    "newline in name": '{"a\n":1}',
    "newline in a string in an array": '{"a":["x\ny"]}',
    "\\x escape": '{"a":"\\x41"}',
    "\\' escape": '{"a":"\\\'"}',
    "\\a escape": '{"a":"\\a"}',
    "\\0 escape": '{"a":"\\0"}',
    "\\u with three digits": '{"a":"\\u123"}',
    "\\u with letters": '{"a":"\\uZZZZ"}',
    "\\u with sign": '{"a":"\\u+123"}',
    "\\U escape": '{"a":"\\U00000041"}',
    "bad escape in name": '{"\\x":1}',
    "bad escape in array": '{"a":["\\x"]}',
    "bad \\u in array": '{"a":["\\u12"]}',
    "bad escape deep in array": '{"a":[{"\\q":1}]}',
    "escaped newline": '{"a":"x\\\ny"}',
    "byte order mark": '\ufeff{"a":1}',
    "byte order mark behind": '{"a":1}\ufeff',
    "no-break space": '\u00a0{"a":1}',
    "form feed": '{"a":\f1}',
    "vertical tab": '{"a":\v1}',
    "U+2028 between": '{"a":\u20281}',
    "U+0085 between": '{"a":\x851}',
    "truncated in name": '{"a',
    "truncated behind name": '{"a"',
    "truncated behind colon": '{"a":',
    "truncated in string": '{"a":"x',
    "truncated in escape": '{"a":"\\',
    "truncated behind value": '{"a":1',
    "truncated behind comma": '{"a":1,',
    "truncated in number": '{"a":-',
    "truncated in array": '{"a":[1',
    "truncated in nested": '{"a":{"b":1}',
    "open brace": "{",
    "close brace": "}",
    "wrong closer": '{"a":1]',
    "wrong closer in array": '{"a":[1}',
    "escaped quotes outside": '{\\"a\\":1}',
    "quoted JSON": '"{\\"a\\":1}"',
    "concatenated strings": '{"a":"b" "c"}',
    "typographic quotes": "{“a”:1}",
    "XML": "<a>1</a>",
    "form": "a=1&b=2",
    "object as name": '{{"a":1}:1}',
    "array as name": '{["a"]:1}',
    "name null byte truncated": '{"\x00',
    "injection: sentinel of an array wrapper": '{"a":1}] garbage',
    "injection: sentinel of an object wrapper": '{"a":1},"p":{"b":1}',
    "injection: number wrapper": "1}",
}

RULES: dict[str, tuple[str, str]] = {
    "name given twice": ("duplicate_name", '{"a":1,"a":2}'),
    "name given twice, null first": ("duplicate_name", '{"a":null,"a":2}'),
    "name given twice, null last": ("duplicate_name", '{"a":1,"a":null}'),
    "name given twice by an escape": ("duplicate_name", '{"a":1,"\\u0061":2}'),
    "name given twice with blanks": ("duplicate_name", '{"a" :1,"a":2}'),
    "name given twice with tabs": ("duplicate_name", '{"a"\t:1,"a"\n:2}'),
    "name given twice in a nested object": ("duplicate_name", '{"x":{"a":1,"a":1}}'),
    "object given twice": ("duplicate_name", '{"x":{"a":1},"x":{"b":1}}'),
    "lone high surrogate": ("lone_surrogate", '{"a":"\\ud800"}'),
    "lone low surrogate": ("lone_surrogate", '{"a":"\\udc00"}'),
    "surrogates in wrong order": ("lone_surrogate", '{"a":"\\ude00\\ud83d"}'),
    "two high surrogates": ("lone_surrogate", '{"a":"\\ud800\\ud800\\udc00"}'),
    "lone surrogate in name": ("lone_surrogate", '{"\\ud800":1}'),
    "lone surrogate before a letter": ("lone_surrogate", '{"a":"\\uD800x"}'),
    "201 levels": ("too_deep", _deep(201)),
    "1,500 levels": ("too_deep", _deep(1500)),
    "201 levels of arrays": ("too_deep", _deep_array(200)),
    "100,000 levels of arrays": ("too_deep", _deep_array(100_000)),
}

CASES: tuple[JsonCase, ...] = (
    *(JsonCase(name, payload, True) for name, payload in GOOD.items()),
    *(JsonCase(name, payload, False) for name, payload in BROKEN.items()),
    *(JsonCase(name, payload, True, rule) for name, (rule, payload) in RULES.items()),
)
"""A name given twice, or a lone surrogate, inside an array is fine: the array stays as its text."""
