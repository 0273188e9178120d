//! The answers to operators' requests, by path.
//!
//! Where: `admin` calls `answer` for each request.
//! Invariant: every answer is complete when it is returned, and changes nothing in the server. A
//! browser shows the answers to no other site: no answer permits it, and on a loopback address a
//! request must name this machine, so that a foreign name that leads here gets no answer.
//! Source: RFC 9110; the Prometheus and OpenMetrics text formats.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use http_body::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode};

use super::Site;
use super::exposition::Format;
use super::metrics;
use crate::stats;

const PATHS: &str = "/metrics     for Prometheus, or in OpenMetrics if Accept names it\n\
                     /stats.json  all statistics\n\
                     /healthz     200 while the server works\n\
                     /readyz      200 while the server accepts clients\n";

const TEXT: &str = "text/plain; charset=utf-8";

type Answer = Response<Full<Bytes>>;

pub(super) fn answer<B>(site: &Site, request: &Request<B>) -> Answer {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    if site.is_loopback && !header(header::HOST).is_none_or(names_this_machine) {
        let text = "the header Host names another machine\n";
        return say(StatusCode::MISDIRECTED_REQUEST, TEXT, text.to_owned());
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = say(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET\n".to_owned());
        refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    match request.uri().path() {
        "/metrics" => {
            let format = Format::accepted(header(header::ACCEPT).unwrap_or_default());
            say(StatusCode::OK, format.content_type(), metrics::write(&site.shared, format))
        }
        "/stats.json" => {
            let all = stats::all(&site.shared);
            say(StatusCode::OK, "application/json", format!("{all:#}\n"))
        }
        "/healthz" => health(site.shared.sickness()),
        "/readyz" => health(site.unreadiness()),
        "/" => say(StatusCode::OK, TEXT, PATHS.to_owned()),
        _ => say(StatusCode::NOT_FOUND, TEXT, PATHS.to_owned()),
    }
}

fn health(fault: Option<String>) -> Answer {
    match fault {
        None => say(StatusCode::OK, TEXT, "ok\n".to_owned()),
        Some(fault) => say(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{fault}\n")),
    }
}

fn say(status: StatusCode, content_type: &'static str, text: String) -> Answer {
    const HEADERS: [(HeaderName, &str); 2] =
        [(header::CACHE_CONTROL, "no-store"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = status;
    let headers = HEADERS.into_iter().chain([(header::CONTENT_TYPE, content_type)]);
    answer.headers_mut().extend(headers.map(|(name, text)| (name, HeaderValue::from_static(text))));
    answer
}

/// True if `host` is an address or `localhost`, with or without a port.
fn names_this_machine(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

impl Site {
    /// The reason why clients should use another server.
    fn unreadiness(&self) -> Option<String> {
        // Relaxed, like the store in `tell_end`: no other data depend on the flag.
        let ends = self.ends.load(Ordering::Relaxed).then(|| "the server ends".to_owned());
        ends.or_else(|| self.shared.sickness())
    }
}

#[cfg(test)]
mod tests {
    use super::names_this_machine;

    #[test]
    fn only_addresses_and_localhost_name_this_machine() {
        for own in ["127.0.0.1", "127.0.0.1:80", "[::1]:9150", "[::1]", "LocalHost:1", "10.0.0.1"] {
            assert!(names_this_machine(own), "{own}");
        }
        for other in ["evil.example", "localhost.evil.example:80", "", "a b", "127.0.0.1.nip.io"] {
            assert!(!names_this_machine(other), "{other}");
        }
    }
}
