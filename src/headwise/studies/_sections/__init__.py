"""What a report shows of each kind of result: findings in sentences, figures, tables."""
