//! Lets requests in that come to this host by its own names, from the page itself.
//!
//! A page of the Web reaches loopback by a name that leads there (DNS rebinding): `Host` then has
//! that name. Or it sends requests across origins: they have its own `Origin`, and
//! `Sec-Fetch-Site`. Other users of the machine do not know the secret in the path.

use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// All that the page may do: load its own files, and speak with its own server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Headers of each answer.
const HEADERS: [(HeaderName, &str); 7] = [
    (HeaderName::from_static("content-security-policy"), POLICY),
    (HeaderName::from_static("x-content-type-options"), "nosniff"),
    (HeaderName::from_static("x-frame-options"), "DENY"),
    (HeaderName::from_static("referrer-policy"), "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cache-control"), "no-store"),
];

/// Names that a host has for itself.
const OWN_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Lets a request through, or says why not. All answers get their headers.
pub(super) async fn check(request: Request, next: Next) -> Response {
    let mut response = match admit(request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(why) => (StatusCode::FORBIDDEN, format!("{why}\n")).into_response(),
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// # Errors
/// The reason why a request is none of the page's.
fn admit(method: &Method, headers: &HeaderMap) -> Result<(), &'static str> {
    let one = |name: HeaderName| {
        let mut values = headers.get_all(name).iter();
        let first = values.next().map(|value| value.to_str().unwrap_or("?"));
        if values.next().is_some() { Err("a header comes twice") } else { Ok(first) }
    };
    let host = one(HOST)?.ok_or("there is no Host")?;
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        _ => host,
    };
    if !OWN_NAMES.contains(&name) {
        return Err("the Host is not localhost, 127.0.0.1 or [::1]");
    }
    match one(ORIGIN)? {
        Some(origin) if origin.strip_prefix("http://") != Some(host) => {
            return Err("the Origin is another one");
        }
        None if method != Method::GET && method != Method::HEAD => return Err("there is no Origin"),
        _ => {}
    }
    match one(HeaderName::from_static("sec-fetch-site"))? {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) => Err("another site has led here: open the address by itself"),
    }
}
