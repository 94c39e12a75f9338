//! Health, metrics and the pages an operator looks at.
