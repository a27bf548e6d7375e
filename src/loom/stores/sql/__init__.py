"""Two databases behind one way to write SQL: tables, migrations, how stored values are read."""
