"""How much each head matters to a task: one function per estimator, one result type."""
