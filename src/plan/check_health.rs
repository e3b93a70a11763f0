//! The health gates. Not carried out yet, but judged in full, so that a plan
//! that has some is told all of its faults.

use std::collections::BTreeSet;

use super::{
    check_values::{check_duration, check_length, check_name, check_range},
    decode::quoted,
    faults::Faults,
};
use crate::api::{Check, PrometheusQuery};

const MAX_CHECKS: usize = 32;
const MAX_NAME: usize = 63;
const MAX_EXPRESSION: usize = 1024;
const MAX_URL: usize = 2048;
const MAX_QUERY: usize = 4096;

/// Judges the checks.
pub(super) fn check_checks(checks: &[Check], faults: &mut Faults) {
    if checks.is_empty() {
        return;
    }
    faults.not_available(
        "spec.checks",
        "health gates are not judged by this version; leave checks out",
    );
    if checks.len() > MAX_CHECKS {
        faults.invalid(
            "spec.checks",
            format!("must have at most {MAX_CHECKS} elements"),
        );
    }
    let mut names = BTreeSet::new();
    for (index, check) in checks.iter().enumerate().take(MAX_CHECKS) {
        let path = format!("spec.checks[{index}]");
        let name_path = format!("{path}.name");
        match &check.name {
            None => faults.required(name_path, "names the check"),
            Some(name) if name.contains('.') => {
                faults.invalid(name_path, format!("{} must not have dots", quoted(name)));
            }
            Some(name) => {
                check_name(&name_path, name, MAX_NAME, faults);
                if !names.insert(name) {
                    let text = format!("{} is the name of another check already", quoted(name));
                    faults.duplicate(name_path, text);
                }
            }
        }
        if let Some(interval) = &check.interval {
            check_duration(&format!("{path}.interval"), interval, false, faults);
        }
        if let Some(limit) = check.failure_limit {
            check_range(&format!("{path}.failureLimit"), limit, &(0..=1000), faults);
        }
        let success_path = format!("{path}.success");
        match &check.success {
            None => faults.required(
                success_path,
                r#"says when all is well, such as "result < 0.01""#,
            ),
            Some(text) => {
                check_length(&success_path, text, MAX_EXPRESSION, faults);
            }
        }
        match &check.prometheus {
            None => faults.required(
                format!("{path}.prometheus"),
                "a check needs a source; there is prometheus",
            ),
            Some(prometheus) => {
                check_prometheus(&format!("{path}.prometheus"), prometheus, faults);
            }
        }
    }
}

fn check_prometheus(path: &str, prometheus: &PrometheusQuery, faults: &mut Faults) {
    let url_path = format!("{path}.url");
    match &prometheus.url {
        None => faults.required(url_path, "must be the base URL of the server"),
        Some(url) => {
            if check_length(&url_path, url, MAX_URL, faults) {
                check_url(&url_path, url, faults);
            }
        }
    }
    let query_path = format!("{path}.query");
    match &prometheus.query {
        None => faults.required(query_path, "must be PromQL that yields one number"),
        Some(query) => {
            check_length(&query_path, query, MAX_QUERY, faults);
        }
    }
}

fn check_url(path: &str, url: &str, faults: &mut Faults) {
    let rest = url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"));
    let authority = rest
        .and_then(|rest| rest.split(['/', '?', '#']).next())
        .unwrap_or_default();
    let plain = !url.contains(|c: char| c.is_whitespace() || c.is_control());
    if authority.is_empty() || authority.starts_with(':') || !plain {
        faults.invalid(
            path,
            format!(
                "{} must be a URL such as \"http://prometheus.monitoring:9090\"",
                quoted(url)
            ),
        );
    } else if authority.contains('@') {
        // The URL itself stays unsaid: it holds a password.
        faults.forbidden(path, "must not hold a user name or password");
    }
}
