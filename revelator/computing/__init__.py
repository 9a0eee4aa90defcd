"""Operations over the answers of a plan, and the values that they read: dates, quantities, names."""
