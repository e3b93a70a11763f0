//! belay
#[allow(clippy::print_stdout)]
fn main() {
    println!("{}", belay::api::crd_yaml().unwrap_or_default())
}
