"""Commands about models and policies."""
