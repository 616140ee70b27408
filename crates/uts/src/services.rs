//! Several services behind one port, told apart by the name that a client asks for in the handshake
//! ([`ConnectionConfig::service`](crate::ConnectionConfig)).

use crate::connection::Connection;
use crate::listener::Listener;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::task::JoinSet;

/// With this code a server closes a connection whose client asks for a service that it does not
/// have. (services.md V-1)
pub const NO_SUCH_SERVICE: u64 = 2;

/// Function that serves a connection.
pub type Handler = Box<dyn Fn(Connection) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Services by their names. The service without a name is that of clients that ask for none.
///
/// `H` is what a service is to the program: a [`Handler`], if [`serve`](Services::serve) is to call
/// it.
///
/// ```no_run
/// # async fn example(listener: uts::Listener) {
/// use uts::{Connection, Services};
///
/// async fn echo(connection: Connection) {
///     while let Some(flow) = connection.accept_flow().await {
///         let (mut send, mut recv) = flow.split();
///         let _ = tokio::io::copy(&mut recv, &mut send).await;
///     }
/// }
///
/// let services = Services::new().on("echo", echo).on("time", |connection: Connection| async move {
///     connection.close(0, "it is late").await;
/// });
/// services.serve(&listener).await;
/// # }
/// ```
pub struct Services<H = Handler>(Arc<BTreeMap<String, H>>);

/// No service has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has no service `{0}`")]
pub struct NoSuchService(pub String);

impl<H> Services<H> {
    /// None so far.
    pub fn new() -> Self {
        Services(Arc::default())
    }

    /// With a service more. One of the same name is replaced. Names of more than 64 bytes cannot be
    /// asked for.
    ///
    /// # Panics
    /// If clones are in use.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, service: H) -> Self {
        let all = Arc::get_mut(&mut self.0).expect("services are named before they are shared");
        all.insert(name.into(), service);
        self
    }

    /// The service of a name.
    ///
    /// # Errors
    /// There is none.
    pub fn find(&self, name: &str) -> Result<&H, NoSuchService> {
        self.0.get(name).ok_or_else(|| NoSuchService(name.to_owned()))
    }

    /// All names, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl Services {
    /// With a service more: see [`with`](Services::with). The connection is closed when the handler
    /// has let go of it.
    #[must_use]
    pub fn on<F>(
        self,
        name: impl Into<String>,
        handler: impl Fn(Connection) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.with(name, Box::new(move |connection| Box::pin(handler(connection))))
    }

    /// Serves a connection, to its handler's end. If no service has the name that its client asks
    /// for, the client is told so, by [`NO_SUCH_SERVICE`] and words.
    pub async fn route(&self, connection: Connection) {
        match self.find(&connection.service()) {
            Ok(handler) => handler(connection).await,
            Err(error) => connection.close(NO_SUCH_SERVICE, &error.to_string()).await,
        }
    }

    /// Serves all connections that a listener accepts, each in a task of its own, until it is
    /// closed and their handlers have ended. If this is given up, they end.
    pub async fn serve(&self, listener: &Listener) {
        let mut served = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                // A handler that has panicked has ended, and harms no others.
                Some(_) = served.join_next(), if !served.is_empty() => {}
                accepted = listener.accept() => {
                    let Some(connection) = accepted else { break };
                    let services = self.clone();
                    served.spawn(async move { services.route(connection).await });
                }
            }
        }
        while served.join_next().await.is_some() {}
    }
}

impl<H> Clone for Services<H> {
    fn clone(&self) -> Self {
        Services(self.0.clone())
    }
}

impl<H> Default for Services<H> {
    fn default() -> Self {
        Services::new()
    }
}

impl<H> fmt::Debug for Services<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_found_by_its_name_alone() {
        let services = Services::new().with("a", 1).with("", 2).with("a", 3);
        assert_eq!((services.find("a"), services.find("")), (Ok(&3), Ok(&2)));
        assert_eq!(services.names().collect::<Vec<_>>(), ["", "a"]);
        let error = services.find("A").expect_err("another name");
        assert_eq!(error.to_string(), "it has no service `A`");
    }
}
