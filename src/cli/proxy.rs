//! Which proxy leads to an API server, as kubectl finds it.
//!
//! Connects to nothing.

use std::net::IpAddr;

use axum::http::{
    Uri,
    uri::{InvalidUri, Scheme},
};
use hyper_util::client::proxy::matcher::Matcher;

/// The proxy to `server`: the one that the kubeconfig names, whatever exceptions
/// there are, or that of the environment.
///
/// # Errors
/// Its address is none.
pub(super) fn proxy(
    named: Option<&str>,
    server: &Uri,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Uri>, InvalidUri> {
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        return Ok(Some(with_scheme(named.parse()?)));
    }
    let either = |upper: &str| {
        let lower = upper.to_ascii_lowercase();
        let mut found = [upper, &lower].into_iter().filter_map(&variable);
        found.find(|text| !text.is_empty())
    };
    let of_scheme = match server.scheme_str() {
        Some("http") => either("HTTP_PROXY"),
        _ => either("HTTPS_PROXY"),
    };
    let Some(url) = of_scheme.filter(|_| !is_loopback(server)) else {
        return Ok(None);
    };
    let url = with_scheme(url.parse()?);
    let exceptions = either("NO_PROXY").unwrap_or_default();
    let matcher = Matcher::builder().all(url.to_string()).no(exceptions);
    Ok(matcher.build().intercept(server).map(|_| url))
}

/// Whether it is on this machine, where a proxy finds nothing.
fn is_loopback(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address: Option<IpAddr> = host.parse().ok();
    host == "localhost" || address.is_some_and(|address| address.is_loopback())
}

/// The address of a proxy, which may be a name and a port alone.
fn with_scheme(url: Uri) -> Uri {
    let Some(authority) = url.authority().filter(|_| url.scheme().is_none()) else {
        return url;
    };
    let full = Uri::builder()
        .scheme(Scheme::HTTP)
        .authority(authority.clone())
        .path_and_query("/");
    full.build().unwrap_or(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(named: Option<&str>, server: &str, variables: &[(&str, &str)]) -> Option<String> {
        let variable = |name: &str| {
            let mut variables = variables.iter();
            let found = variables.find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let proxy = proxy(named, &server.parse().unwrap(), variable).unwrap();
        proxy.map(|url| url.to_string())
    }

    const SERVER: &str = "https://api.example.com:6443";
    const PROXY: (&str, &str) = ("HTTPS_PROXY", "http://proxy:3128");

    #[test]
    fn exceptions_are_about_the_server_and_not_the_proxy() {
        let found = Some("http://proxy:3128/".to_owned());
        for (exceptions, expected) in [
            ("", &found),
            ("proxy", &found),
            ("other.example.com,10.0.0.0/8", &found),
            ("api.example.com", &None),
            ("localhost, .example.com", &None),
            ("*", &None),
        ] {
            let variables = [PROXY, ("NO_PROXY", exceptions)];
            assert_eq!(of(None, SERVER, &variables), *expected, "{exceptions}");
        }
        let inside = [PROXY, ("no_proxy", "10.0.0.0/8")];
        assert_eq!(of(None, "https://10.1.2.3:6443", &inside), None);
    }

    #[test]
    fn nothing_on_this_machine_is_reached_by_a_proxy_of_the_environment() {
        for server in [
            "https://127.0.0.1:6443",
            "https://localhost",
            "https://[::1]:1",
        ] {
            assert_eq!(of(None, server, &[PROXY]), None, "{server}");
            let named = of(Some("http://p:1"), server, &[PROXY, ("NO_PROXY", "*")]);
            assert_eq!(named.as_deref(), Some("http://p:1/"), "{server}");
        }
    }

    #[test]
    fn a_variable_is_for_its_scheme_and_an_empty_one_is_none() {
        let http = ("http_proxy", "http://other:1");
        assert_eq!(of(None, SERVER, &[http]), None);
        let found = of(None, "http://api.example.com", &[http, PROXY]);
        assert_eq!(found.as_deref(), Some("http://other:1/"));
        assert_eq!(of(None, SERVER, &[("HTTPS_PROXY", "")]), None);
        let lower = [("HTTPS_PROXY", ""), ("https_proxy", "http://p:1")];
        assert_eq!(of(Some(""), SERVER, &lower).as_deref(), Some("http://p:1/"));
    }

    #[test]
    fn a_proxy_without_a_scheme_is_an_http_proxy() {
        for (given, taken) in [
            ("proxy:3128", "http://proxy:3128/"),
            ("proxy.example.com", "http://proxy.example.com/"),
            (
                "http://jane:secret@proxy:3128",
                "http://jane:secret@proxy:3128/",
            ),
            ("socks5://proxy:1080", "socks5://proxy:1080/"),
        ] {
            assert_eq!(of(Some(given), SERVER, &[]).as_deref(), Some(taken));
            let found = of(None, SERVER, &[("HTTPS_PROXY", given)]);
            assert_eq!(found.as_deref(), Some(taken));
        }
    }
}
