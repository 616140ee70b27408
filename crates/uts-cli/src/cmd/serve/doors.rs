//! Sockets by which a server is looked at: the operator's, and that of figures. They go to who
//! takes the server's port over.

use super::clients::Clients;
use crate::args::ServeArgs;
use crate::cmd::Failure;
use crate::control::Control;
use crate::ui::Ui;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
#[cfg(feature = "metrics")]
use std::sync::atomic::Ordering::Relaxed;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// The sockets, as far as options want them.
pub struct Doors<'a> {
    args: &'a ServeArgs,
    present: &'a Arc<Clients>,
    without_place: &'a Arc<AtomicU64>,
    /// Takes those who want to take over.
    ask: mpsc::Sender<UnixStream>,
    metrics: Metered,
    tasks: JoinSet<()>,
}

impl<'a> Doors<'a> {
    /// Of a server with these clients, of which the socket has refused `without_place`.
    pub fn new(
        args: &'a ServeArgs,
        present: &'a Arc<Clients>,
        without_place: &'a Arc<AtomicU64>,
        ask: mpsc::Sender<UnixStream>,
    ) -> Self {
        Doors { args, present, without_place, ask, metrics: Metered::default(), tasks: JoinSet::new() }
    }

    /// Opens them. `control` = the operator's, as it was made before.
    ///
    /// # Errors
    /// Why there are no figures.
    pub async fn open(&mut self, control: Option<Control>, ui: &dyn Ui) -> Result<(), Failure> {
        if let Some(control) = control {
            self.tasks.spawn(control.serve_with(self.present.clone(), Some(self.ask.clone())));
        }
        self.metrics =
            Metered::begin(self.args, self.present, self.without_place, ui, &mut self.tasks).await?;
        Ok(())
    }

    /// Opens them after they were closed, as far as they are free.
    pub async fn open_again(&mut self, ui: &dyn Ui) {
        let control = bind_control(self.args);
        let warn = |failure: Failure| ui.warning(failure.line().unwrap_or_default());
        let control = control.unwrap_or_else(|failure| {
            warn(failure);
            None
        });
        if let Err(failure) = self.open(control, ui).await {
            warn(failure);
        }
    }

    /// Frees them.
    pub async fn close(&mut self) {
        self.tasks.shutdown().await;
    }

    /// Looks at round trips.
    pub fn look(&self) {
        self.metrics.look(self.present);
    }
}

/// Makes the operator's socket, if options want one.
///
/// # Errors
/// Why it cannot be made.
pub fn bind_control(args: &ServeArgs) -> Result<Option<Control>, Failure> {
    args.control.as_deref().map(Control::bind).transpose().map_err(Failure::Failed)
}

/// Figures for Prometheus, if they are wanted.
#[derive(Default)]
struct Metered {
    #[cfg(feature = "metrics")]
    told: Option<Arc<crate::metrics::Metrics>>,
}

impl Metered {
    /// Tells figures where the options say. `without_place`: clients that the socket has refused.
    #[cfg(feature = "metrics")]
    async fn begin(
        args: &ServeArgs,
        present: &Arc<Clients>,
        without_place: &Arc<AtomicU64>,
        ui: &dyn Ui,
        tasks: &mut JoinSet<()>,
    ) -> Result<Metered, Failure> {
        let Some(place) = args.metrics else { return Ok(Metered { told: None }) };
        let told = Arc::new(crate::metrics::Metrics::bind(place).await.map_err(Failure::Failed)?);
        let address = told.local_addr().map_err(|error| Failure::Failed(error.to_string()))?;
        ui.notice(None, "metrics", &format!("figures for Prometheus are at http://{address}/metrics"));
        if !address.ip().is_loopback() {
            ui.warning(&format!(
                "--metrics: whoever reaches {address} reads them; nobody is asked for a key"
            ));
        }
        let (present, without_place) = (present.clone(), without_place.clone());
        tasks.spawn(told.clone().serve(move || present.figures(without_place.load(Relaxed))));
        Ok(Metered { told: Some(told) })
    }

    /// Refuses figures, of which this program has none.
    #[cfg(not(feature = "metrics"))]
    async fn begin(
        args: &ServeArgs,
        _: &Arc<Clients>,
        _: &Arc<AtomicU64>,
        _: &dyn Ui,
        _: &mut JoinSet<()>,
    ) -> Result<Metered, Failure> {
        match args.metrics {
            None => Ok(Metered {}),
            Some(_) => {
                Err(Failure::Usage("--metrics: this program was built without (feature `metrics`)".into()))
            }
        }
    }

    /// Looks at round trips.
    fn look(&self, present: &Clients) {
        #[cfg(feature = "metrics")]
        if let Some(told) = &self.told {
            told.round_trips(present.round_trips().into_iter());
        }
        #[cfg(not(feature = "metrics"))]
        let _ = present;
    }
}
