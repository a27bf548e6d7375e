"""Random tests are judged by what they find, not by the clock, and a failure is shrunk only briefly."""

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "loom",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
settings.load_profile("loom")
