"""Lines that stand for messages which were left out, chosen without a model."""
