"""The text of a plan: reading it, writing it, and making models write it well."""
