"""The store in SQLite or Postgres, on SQLAlchemy Core."""
