from __future__ import annotations

from dmls_ray.storage.runs_file import merge_lines


def test_lines_are_merged_once_each_and_a_torn_line_is_cut_off() -> None:
    assert merge_lines(b'{"a": 1}\n', [b'{"b": 2}\n', b'{"a": 1}\n', b'{"b": 2}']) == b'{"a": 1}\n{"b": 2}\n'
    assert merge_lines(b'{"a": 1}\n{"tor', [b'{"b": 2}\n']) == b'{"a": 1}\n{"b": 2}\n'
    assert merge_lines(b'{"a": 1}', []) == b'{"a": 1}\n'
    assert merge_lines(b"", []) == b""
