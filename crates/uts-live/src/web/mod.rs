//! The page, and the guard before it.

mod guard;

use crate::hub::Hub;
use crate::knobs::Knobs;
use crate::word::Asks;
use anyhow::Result;
use axum::Json;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::Stream;
use futures_util::stream;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Pages that may look at once; others are told to come later.
pub const CLIENTS_MAX: usize = 8;
/// Connections of HTTP at once; others wait.
const CONNECTIONS_MAX: usize = 48;
/// The largest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// The largest body of a request, in bytes.
const BODY_BYTES_MAX: usize = 1 << 10;
/// A request's head comes within this time.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// Time within which a stop is noticed.
const NOTICE: Duration = Duration::from_millis(100);

/// A page to be served, and the secret of those who may see it.
pub(crate) struct Site {
    pub hub: Arc<Hub>,
    /// The secret in the page's address.
    pub token: String,
}

/// A secret for an address: 128 random bits.
///
/// # Errors
/// The system gives no random bytes.
pub(crate) fn token() -> Result<String> {
    let bytes = uts::random_bytes::<16>()?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A file of the page, with its type.
const FILES: [(&str, &str, &str); 7] = [
    ("/", "text/html; charset=utf-8", include_str!("../../page/index.html")),
    ("/live.css", "text/css; charset=utf-8", include_str!("../../page/live.css")),
    ("/live.js", "text/javascript; charset=utf-8", include_str!("../../page/live.js")),
    ("/icon.svg", "image/svg+xml", include_str!("../../page/icon.svg")),
    ("/uPlot.txt", "text/plain; charset=utf-8", include_str!("../../page/uPlot.LICENSE")),
    ("/uPlot.css", "text/css; charset=utf-8", include_str!("../../page/uPlot.min.css")),
    ("/uPlot.js", "text/javascript; charset=utf-8", include_str!("../../page/uPlot.iife.min.js")),
];

#[derive(Clone)]
struct Shared {
    hub: Arc<Hub>,
    clients: Arc<Semaphore>,
}

fn router(site: Site) -> Router {
    let shared = Shared { hub: site.hub, clients: Arc::new(Semaphore::new(CLIENTS_MAX)) };
    // Whoever does not know the secret finds nothing.
    let at = |name: &str| format!("/{}{name}", site.token);
    let mut page = Router::new()
        .route(&at("/events"), get(events))
        .route(&at("/explain"), get(explain))
        .route(&at("/asks"), post(asks))
        .route(&at("/path"), post(path));
    for (name, kind, text) in FILES {
        page = page.route(&at(name), get(move || async move { ([(header::CONTENT_TYPE, kind)], text) }));
    }
    page.with_state(shared)
        .fallback(|| async { StatusCode::NOT_FOUND })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn(guard::check))
}

/// Serves the page until it is stopped.
pub(crate) fn serve(listener: TcpListener, site: Site, stop: &AtomicBool) {
    // Both fail only where no thread or socket can be had, and then nothing can be seen.
    let Ok(runtime) = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()
    else {
        return;
    };
    let app = router(site);
    let accepting = async move {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(place) = room.clone().acquire_owned().await else { return Ok(()) };
            let Ok((socket, _)) = listener.accept().await else {
                tokio::time::sleep(NOTICE).await;
                continue;
            };
            let app = app.clone();
            tokio::spawn(async move {
                let _place = place;
                // Who has gone needs no answer.
                let _ = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_PATIENCE)
                    .max_buf_size(HEAD_BYTES_MAX)
                    .serve_connection(TokioIo::new(socket), TowerToHyperService::new(app))
                    .await;
            });
        }
    };
    runtime.block_on(async {
        tokio::select! {
            ended = accepting => { let _: std::io::Result<()> = ended; }
            () = async {
                while !stop.load(Ordering::Relaxed) {
                    tokio::time::sleep(NOTICE).await;
                }
            } => {}
        }
    });
    runtime.shutdown_timeout(NOTICE);
}

async fn explain(State(shared): State<Shared>, Query(knobs): Query<Knobs>) -> Response {
    match shared.hub.explain(knobs) {
        Ok(explained) => Json(explained).into_response(),
        Err(why) => (StatusCode::UNPROCESSABLE_ENTITY, why).into_response(),
    }
}

async fn path(State(shared): State<Shared>, Json(knobs): Json<Knobs>) -> Response {
    let moved = tokio::task::spawn_blocking(move || shared.hub.set(knobs)).await;
    match moved {
        Ok(Ok(())) => StatusCode::NO_CONTENT.into_response(),
        Ok(Err(why)) => (StatusCode::UNPROCESSABLE_ENTITY, why).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn asks(State(shared): State<Shared>, Json(asks): Json<Asks>) -> StatusCode {
    shared.hub.ask(asks);
    StatusCode::NO_CONTENT
}

async fn events(State(shared): State<Shared>) -> Response {
    let Ok(place) = shared.clients.clone().try_acquire_owned() else {
        let retry = [(header::RETRY_AFTER, HeaderValue::from_static("5"))];
        return (StatusCode::SERVICE_UNAVAILABLE, retry, format!("{CLIENTS_MAX} pages look already\n"))
            .into_response();
    };
    let (hello, news) = shared.hub.subscribe();
    Sse::new(told(hello, news, place)).keep_alive(KeepAlive::default()).into_response()
}

/// All that is known, and then what becomes known. A page that is too far behind misses some of it.
fn told(
    hello: Arc<str>,
    news: Receiver<Arc<str>>,
    place: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let event = |text: &str| Ok(Event::default().data(text));
    stream::unfold((Some(hello), news, place), move |(hello, mut news, place)| async move {
        if let Some(hello) = hello {
            return Some((event(&hello), (None, news, place)));
        }
        loop {
            match news.recv().await {
                Ok(text) => return Some((event(&text), (None, news, place))),
                Err(RecvError::Lagged(_)) => {}
                // The browser comes again, and is told all.
                Err(RecvError::Closed) => return None,
            }
        }
    })
}

#[cfg(test)]
mod tests;
