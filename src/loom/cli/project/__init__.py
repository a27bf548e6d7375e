"""Commands about what a project knows."""
