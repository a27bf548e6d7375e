"""Random tests are judged by what they find, not by the clock; the same cases each time, until
`make fuzz` asks for new ones.
"""

from hypothesis import HealthCheck, Phase, settings

from tests.shared import EXAMPLES, examples

settings.register_profile(
    "loom",
    deadline=None,
    max_examples=examples(75),
    derandomize=not EXAMPLES,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
settings.load_profile("loom")
