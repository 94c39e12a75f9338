//! The decision service: which policies apply to a request, and what they say.
