//! The accept loops of a listener of the edge. They stand above connections, which hold their listener.

use std::sync::Arc;

use tidegate_net::accept::accept;
use tidegate_net::connection::Tasks;
use tidegate_net::listen::Listeners;
use tidegate_net::runtime::Cores;

use crate::arrival;
use crate::service::EdgeListener;

impl EdgeListener {
    /// Serves `listeners` until the drain ends: socket `i` on core `i`, a task for each connection.
    pub fn start(self: &Arc<Self>, cores: &Cores, listeners: Listeners) {
        let followed = Arc::clone(self);
        cores.spawn_on(0, async move { followed.follow().await });
        for (core, socket) in listeners.into_sockets().into_iter().enumerate() {
            let listener = Arc::clone(self);
            cores.spawn_on(core, async move {
                let tasks = Tasks::default();
                let serve = |stream, peer, held| {
                    tasks.spawn(arrival::serve(Arc::clone(&listener), stream, peer, core, held));
                };
                let accepted = tokio::select! {
                    accepted = accept(socket, &listener.gate, core, serve) => accepted,
                    () = tasks.sweep() => Ok(()),
                };
                if let Err(error) = accepted {
                    tracing::error!(listener = %listener.address, %error, "cannot watch a listening socket");
                }
                tasks.end(&listener.gate.drain).await;
            });
        }
    }
}
