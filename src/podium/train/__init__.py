"""Teaching a conductor by whether its answers were right.

    rewards        what an outcome is worth
    score          a plan's text and a task -> what it earned, and the run behind it
    diagnostics    what a step of training showed, and whether the policy is collapsing

None of these three knows a trainer or imports torch; the modules that train do both.
"""
