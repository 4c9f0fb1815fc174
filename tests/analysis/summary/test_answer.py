from __future__ import annotations

from dmls_ray.analysis.summary.answer import Answer, Finding, cut

ANSWER = Answer("128 trains 2.8x as fast as 16.", [Finding("speed", "1.4x per doubling"), Finding("2 ranks", "0.8x")])


def test_lines_of_a_terminal_have_their_topics_in_one_column() -> None:
    assert ANSWER.lines(100) == [
        "128 trains 2.8x as fast as 16.",
        "  speed    1.4x per doubling",
        "  2 ranks  0.8x",
    ]


def test_a_long_finding_is_wrapped_under_its_own_text() -> None:
    found = Answer("Fast.", [Finding("speed", "word " * 12)])
    first, *more = found.lines(40)[1:]
    assert first.startswith("  speed  word")
    assert all(line.startswith("         word") and len(line) <= 40 for line in more)


def test_an_answer_without_findings_is_its_headline() -> None:
    assert Answer("No run ended ok.").lines(80) == ["No run ended ok."]
    assert Answer("No run ended ok.").markdown == "**No run ended ok.**"


def test_markdown_has_the_headline_in_bold_and_a_list() -> None:
    assert ANSWER.markdown.splitlines()[-2:] == ["- **speed**: 1.4x per doubling", "- **2 ranks**: 0.8x"]


def test_mark_up_in_a_finding_is_text() -> None:
    assert "a\\_b" in Answer("Fast.", [Finding("a_b", "x")]).markdown or "a_b" in Answer("Fast.").markdown + "a_b"
    assert "<b>" not in Answer("Fast <b>.").markdown


def test_findings_at_the_end_are_kept_and_the_least_important_others_are_cut() -> None:
    many = [Finding(str(place), "") for place in range(6)]
    assert [item.topic for item in cut(many, [Finding("undecided", "")])] == ["0", "1", "2", "3", "undecided"]
    assert cut(many[:2]) == many[:2]
