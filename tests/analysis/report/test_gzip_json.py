from __future__ import annotations

import json
import math

from dmls_ray.analysis.report.gzip_json import pack, to_json
from dmls_ray.util.text import utf8_safe
from tests.analysis.report.samples import unpack


def test_what_is_packed_comes_back_and_holds_nothing_that_html_reads() -> None:
    text = '<script>alert("ä")</script> & \u2028'
    assert unpack(pack(text)).decode() == text
    assert not set("<>&\"'") & set(pack(text))


def test_equal_values_pack_to_equal_texts() -> None:
    assert pack("a" * 1000) == pack("a" * 1000)


def test_json_has_no_number_that_is_none_and_takes_what_files_are_called() -> None:
    assert json.loads(to_json({"a": math.nan, 1: [math.inf, 2.5]})) == {"a": None, "1": [None, 2.5]}
    assert json.loads(to_json({"name": ["\udce4", 2**70]})) == {"name": ["\\udce4", 2**70]}


def test_text_that_utf8_cannot_hold_is_spelled_out() -> None:
    assert utf8_safe("a\udce4ä") == "a\\udce4ä"
