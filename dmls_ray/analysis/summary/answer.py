"""`Answer`: what the runs of a sweep say, as a headline and a few lines, one finding each."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from dmls_ray.analysis.export.text_tables import markdown_text

MOST_FINDINGS = 5
"""Lines below a headline: more are not read at a glance."""


@dataclass(frozen=True)
class Finding:
    """One line of an answer."""

    topic: str
    """What it is about, in a word or two: `speed`."""
    text: str


@dataclass(frozen=True)
class Answer:
    """A headline, and findings in the order in which they are read."""

    headline: str
    findings: Sequence[Finding] = ()
    is_of_comparisons: bool = True
    """Whether it compares trials with each other, so that it says which comparisons are not decided."""

    def lines(self, width: int) -> list[str]:
        """The answer for a terminal: topics in a column of their own, long lines wrapped.

        Args:
            width: characters of a line.
        """
        column = 2 + max((len(finding.topic) for finding in self.findings), default=0) + 2
        lines = textwrap.wrap(self.headline, width, break_on_hyphens=False)
        for finding in self.findings:
            first, *more = textwrap.wrap(finding.text, max(width - column, 20), break_on_hyphens=False) or [""]
            lines += [f"{f'  {finding.topic}':{column}}{first}", *(f"{'':{column}}{line}" for line in more)]
        return lines

    @property
    def text(self) -> str:
        """The answer, a finding a line, unwrapped."""
        return "\n".join([self.headline, *(f"{finding.topic}: {finding.text}" for finding in self.findings)])

    @property
    def markdown(self) -> str:
        """The answer as Markdown: the headline in bold, the findings as a list."""
        findings = (f"- **{markdown_text(item.topic)}**: {markdown_text(item.text)}" for item in self.findings)
        return "\n".join([f"**{markdown_text(self.headline)}**", "", *findings]).rstrip()


def cut(findings: Sequence[Finding], last: Sequence[Finding] = (), most: int = MOST_FINDINGS) -> list[Finding]:
    """The findings that fit in an answer.

    Args:
        findings: the most important first; as many as fit are kept.
        last: findings at the end, which are always kept.
        most: of both.
    """
    return [*findings[: max(most - len(last), 0)], *last]
