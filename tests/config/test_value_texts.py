from __future__ import annotations

import pytest

from dmls_ray.config.value_texts import duration, seconds_of, share_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1.5 min", 90), ("20m", 1200), ("2h", 7200), ("2H", 7200), ("0", 0), ("tomorrow", None),
     ("", None), ("-5", None), ("2 days", None), ("1h30", None), ("nan", None), ("m", None)],
)  # fmt: skip
def test_durations_are_read_as_people_type_them(text: str, seconds: float | None) -> None:
    if seconds is not None:
        assert seconds_of(text) == seconds
        return
    with pytest.raises(ValueError, match="90s, 20m or 2h"):
        seconds_of(text)


@pytest.mark.parametrize(
    ("text", "share"),
    [("5%", 0.05), ("0.05", 0.05), (".05", 0.05), ("5e-2", 0.05), ("2 %", 0.02), ("much", None), ("", None),
     ("5%%", None), ("nan", None), ("inf", None)],
)  # fmt: skip
def test_shares_are_read_with_and_without_percent(text: str, share: float | None) -> None:
    if share is not None:
        assert share_of(text) == pytest.approx(share)
        return
    with pytest.raises(ValueError, match="0.05 or 5%"):
        share_of(text)


def test_durations_are_written_as_people_say_them() -> None:
    assert [duration(seconds) for seconds in (3.4, 200, 9000)] == ["3 s", "3 min 20 s", "2.5 h"]
