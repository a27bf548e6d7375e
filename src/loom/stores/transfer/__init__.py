"""Sessions and trees out of a store and into another, each line proved."""
