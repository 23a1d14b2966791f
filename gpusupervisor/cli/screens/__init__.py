"""What people see: shapes drawn with rich. Pure."""
