//! Durable configuration: documents, revisions, audit log, watchers.
