//! What there is beside the documents, as the handle gives it: counts, secrets, uses, messages, and the nodes that are there,
//! by number and by name.
//!
//! Each is a file of its own beneath the data directory and the shared database. These methods stand above both, since they ask
//! whichever it is.

use std::sync::Arc;

use crate::control::{Backend, Control};
use crate::counts::{Added, Batch, Period, Sums};
use crate::document::Kind;
use crate::error::Error;
use crate::messages::{Heard, MessageStats};
use crate::nodes::{KnownNode, NodeIdentity, NodeList};
use crate::presence::NodesPresent;
use crate::remote::Remote;
use crate::secrets::{MAX_SECRET_BYTES, Secret, SecretUpdate};
use crate::uses::Use;

impl Control {
    /// Adds a batch to the sums of its minute, hour and day, and forgets the oldest of those that are too many, and
    /// of those after the second `now` the last. A batch with a number that is not larger than the last of its writer changes nothing. Blocks.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Late`], [`Error::Unknown`], [`Error::Database`] or [`Error::Corrupt`]: it may be given again.
    pub fn add_counts(&self, batch: &Batch, now: u64) -> Result<Added, Error> {
        match &self.shared.backend {
            Backend::Local(local) => local.add_counts(batch, now),
            Backend::Remote(remote) => remote.add_counts(batch, now),
        }
    }

    /// Gives `add` all sums in a period, as they were at one moment, and returns its result, with the number of the
    /// last batch of `writer` in them (0 without one). Blocks.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Late`], [`Error::Database`] or [`Error::Corrupt`].
    pub fn read_counts<A: Default>(
        &self,
        period: Period,
        writer: u64,
        add: impl Fn(&mut A, u64, &str, &Sums),
    ) -> Result<(A, u64), Error> {
        match &self.shared.backend {
            Backend::Local(local) => local.read_counts(period, writer, add),
            Backend::Remote(remote) => remote.read_counts(period, writer, add),
        }
    }

    /// All secrets, by name. While the shared database is away, those of this node's copy. Blocks.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Late`] where there is no copy; [`Error::Database`] or [`Error::Corrupt`].
    pub fn secrets(&self) -> Result<Vec<Secret>, Error> {
        match &self.shared.backend {
            Backend::Local(local) => local.secrets(),
            Backend::Remote(remote) => remote.secrets(),
        }
    }

    /// Puts a secret in the place of version `known`, 0 if there must be none; its version then. Blocks.
    ///
    /// # Errors
    /// [`Error::Moved`]: it has another version by now. [`Error::Full`]; of the disk or the network:
    /// [`Error::Database`], [`Error::Unavailable`] or [`Error::Unknown`]: read again before another attempt.
    pub fn put_secret(&self, name: &str, body: &str, known: u64) -> Result<u64, Error> {
        if body.len() > MAX_SECRET_BYTES {
            return Err(Error::Full { what: "bytes of a secret", limit: MAX_SECRET_BYTES });
        }
        let update = SecretUpdate { name, body, known };
        match &self.shared.backend {
            Backend::Local(local) => local.put_secret(update),
            Backend::Remote(remote) => remote.put_secret(update),
        }
    }

    /// Whether other nodes share the configuration and the secrets.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.remote().is_some()
    }

    /// Keeps the seconds at which these documents were last of use, where that is later than what is kept. Uses of documents that
    /// are gone are forgotten. Blocks.
    ///
    /// # Errors
    /// [`Error::Database`], [`Error::Unavailable`], [`Error::Late`] or [`Error::Corrupt`].
    pub fn keep_uses(&self, kind: Kind, uses: &[Use]) -> Result<(), Error> {
        match &self.shared.backend {
            Backend::Local(local) => local.keep_uses(kind, uses),
            Backend::Remote(remote) => remote.keep_uses(kind, uses),
        }
    }

    /// What is kept of documents that were of use in this second or later. Blocks.
    ///
    /// # Errors
    /// As [`Control::keep_uses`].
    pub fn uses(&self, kind: Kind, since: u64) -> Result<Vec<Use>, Error> {
        match &self.shared.backend {
            Backend::Local(local) => local.uses(kind, since),
            Backend::Remote(remote) => remote.uses(kind, since),
        }
    }

    /// Tells the other nodes, if they can be told. Never blocks. In a data directory there is no other node to tell.
    pub fn tell(&self, message: String) {
        if let Some(remote) = self.remote() {
            remote.messages().tell(message);
        }
    }

    /// What the other nodes tell from now on; `None` in a data directory.
    #[must_use]
    pub fn heard(&self) -> Option<Heard> {
        self.remote().map(|remote| remote.messages().heard.subscribe())
    }

    /// How many messages there were; `None` in a data directory.
    #[must_use]
    pub fn message_stats(&self) -> Option<MessageStats> {
        self.remote().map(|remote| remote.messages().stats())
    }

    /// The number of this node among those that share the configuration, drawn anew at each start; 0 in a data
    /// directory.
    #[must_use]
    pub fn node(&self) -> u32 {
        self.remote().map_or(0, Remote::node)
    }

    /// The nodes that are there, as of some seconds ago; `None` while the database does not say. A caller that acts
    /// on a node's absence waits first, since a node that connects again is absent for a moment.
    #[must_use]
    pub fn nodes_present(&self) -> Option<NodesPresent> {
        self.remote().map_or_else(|| Some(Arc::new([0].into())), Remote::present)
    }

    /// Has this node be listed as this. What was said first stays.
    pub fn introduce(&self, identity: NodeIdentity) {
        let identity = self.shared.identity.get_or_init(|| identity);
        if let Some(remote) = self.remote() {
            remote.introduce(identity.clone());
        }
    }

    /// The nodes that share the configuration by name, this one always among them, as of some seconds ago. Never blocks.
    #[must_use]
    pub fn nodes(&self) -> NodeList {
        let mut list = self.remote().map_or_else(NodeList::default, Remote::listed);
        list.is_current |= !self.is_shared();
        if !list.nodes.iter().any(|node| node.number == self.node()) {
            let identity = self.shared.identity.get().cloned();
            list.nodes.insert(0, KnownNode::alone(self.node(), identity));
        }
        list
    }
}
