"""The SQL of a `sql` operator: one row-wise SELECT that says the same whenever it runs."""
