"""What the model will see: policies, strategies, the gate, and the report."""
