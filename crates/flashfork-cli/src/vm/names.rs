//! Names of clones at a prompt.

use super::client::Client;
use super::daemon::default_socket;
use clap_complete::CompletionCandidate;
use flashfork_proto::api;
use std::time::Duration;

/// Nobody waits longer for what he could type.
const PATIENCE: Duration = Duration::from_secs(1);

/// The clones of the user's own daemon. Nothing may be printed at a prompt: where there is none, there are no names.
pub fn candidates() -> Vec<CompletionCandidate> {
    let clones = Client::new(&default_socket()).within(PATIENCE).get::<Vec<api::Clone>>("/v1/clones");
    clones.into_iter().flatten().map(|clone| clone.name.into()).collect()
}
