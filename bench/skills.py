"""Which skills are loaded for a request, and how often for nothing.

    python bench/skills.py

There are 14 skills (tests/fixtures/skills) and 40 requests. Half of the requests need no skill. The
weights of `loom/project/skills/matching.py` may be tuned with TUNED only. HELD_OUT is the test.
"""

import sys
from pathlib import Path

from loom.project.skills.choosing import MAX_ACTIVE
from loom.project.skills.folders import find_skills
from loom.project.skills.matching import match_skills

SKILLS = Path(__file__).parent.parent / "tests" / "fixtures" / "skills"
# a request, and the skill that it needs; "" if it needs none
TUNED: tuple[tuple[str, str], ...] = (
    ("Fill in the tax form in forms/w9.pdf with the data of our company.", "pdf-forms"),
    ("Can you draft the changelog for version 2.4 from the commits?", "release-notes"),
    (
        "We need to rename the column `email` to `address` in the users table.",
        "database-migrations",
    ),
    ("Write up yesterday's outage: timeline, impact, root cause.", "incident-postmortem"),
    ("The screen reader skips our menu and the focus order is odd.", "accessibility-audit"),
    ("Add an rpc method ListOrders to orders.proto with its handler.", "grpc-endpoint"),
    ("test_checkout fails now and then in CI, never on my machine.", "flaky-tests"),
    ("Make the container image smaller, the Dockerfile builds 1.8 GB.", "docker-images"),
    ("How much latency do we get under load at 500 requests a second?", "load-testing"),
    ("Create a spreadsheet with a chart of revenue by month as .xlsx.", "excel-reports"),
    ("Why does parse_turn return None here?", ""),
    ("Rename the variable x to count in utils.py.", ""),
    ("What does this function do?", ""),
    ("The login page shows a blank screen after I click the button. Fix it.", ""),
    ("Add a --verbose option to the command line.", ""),
    ("Refactor the parser into smaller functions and keep the tests green.", ""),
    ("Thanks, that works. Commit it.", ""),
    ("Sort the list of users by their last name in the sidebar.", ""),
    ("Upgrade the library to its newest version and see what breaks.", ""),
    ("Explain the difference between a list and a tuple in Python.", ""),
)
HELD_OUT: tuple[tuple[str, str], ...] = (
    ("Merge these three PDF files and take out the empty pages.", "pdf-forms"),
    ("Write the release notes for the next version.", "release-notes"),
    ("Add an index on orders.customer_id, the table has 80 million rows.", "database-migrations"),
    ("I need a new S3 bucket and a role for it in Terraform.", "terraform-modules"),
    ("Translate the strings of the settings page to French.", "translate-strings"),
    ("Check the upload handler for injection and leaked secrets.", "security-review"),
    ("Write a getting started guide for engineers who are new in the team.", "onboarding-docs"),
    ("Check contrast and labels of the sign-up page against WCAG.", "accessibility-audit"),
    ("Run a load test against the search endpoint and give me p95.", "load-testing"),
    ("Put the totals into an Excel workbook with a pivot table.", "excel-reports"),
    ("The unit test for the tokenizer fails with an assertion error.", ""),
    ("Where is the session created?", ""),
    ("Make the button blue.", ""),
    ("Continue.", ""),
    ("Cache the result of the query for ten minutes.", ""),
    ("Remove the dead code in the renderer.", ""),
    ("Which of the two designs would you choose, and why?", ""),
    ("The server crashes with a KeyError when the header is missing.", ""),
    ("Write a function that splits a string at the last comma.", ""),
    ("Review my pull request and tell me whether the names are good.", ""),
)


def measure(cases: tuple[tuple[str, str], ...]) -> dict[str, float]:
    """Precision and recall over what would be loaded, and which cases went wrong."""
    skills = find_skills(SKILLS).found
    right = loaded = 0
    quiet = 0
    for request, needed in cases:
        names = [match.skill.name for match in match_skills(skills, request)[:MAX_ACTIVE]]
        right += needed in names
        loaded += len(names)
        quiet += not needed and not names
        if (needed and names != [needed]) or (not needed and names):
            print(f"  {needed or 'none'!s:22} got {', '.join(names) or 'none':30} {request}")
    wanted = sum(bool(needed) for _, needed in cases)
    return {
        "precision": right / max(loaded, 1),
        "recall": right / wanted,
        "quiet": quiet / (len(cases) - wanted),
    }


def main() -> None:
    for name, cases in (("tuned", TUNED), ("held out", HELD_OUT)):
        figures = measure(cases)
        print(name, " ".join(f"{key}={value:.2f}" for key, value in figures.items()))


if __name__ == "__main__":
    sys.exit(main())
