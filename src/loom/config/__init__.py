"""Configuration: what the files of a project and of the user say, and the environment."""
