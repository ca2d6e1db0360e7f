//! `flashfork cluster`: what can be asked of a cluster as a whole.

use super::{
	ask::{Heard, ask},
	connection::{Access, connect},
	status,
	wire::{self, Order},
};
use crate::pool::uuid;
use axum::body::Bytes;
use flashfork_terminal::{CliError, output, table};
use std::process::ExitCode;

/// Look after the nodes of a cluster of servers
#[derive(clap::Args)]
pub struct ClusterArgs {
	#[command(subcommand)]
	command: ClusterCommand,
}

#[derive(clap::Subcommand)]
enum ClusterCommand {
	/// List the nodes
	#[command(after_help = "Example: flashfork cluster status --nats nats://10.0.0.1")]
	Status(Nats),
	/// Have a node end its work, and wait for that: it takes no new calls and events, and passes on what it is asked
	#[command(after_help = "Example: flashfork cluster drain node-2\n\nStarted again, the node takes part again.")]
	Drain {
		/// The node
		node: String,
		#[command(flatten)]
		nats: Nats,
	},
}

#[derive(clap::Args)]
struct Nats {
	/// NATS servers
	#[arg(long, value_name = "URL", value_delimiter = ',', default_value = "nats://127.0.0.1:4222")]
	nats: Vec<String>,
	#[command(flatten)]
	access: Access,
}

impl ClusterArgs {
	/// Asks, and prints what comes.
	pub fn main(&self) -> Result<ExitCode, CliError> {
		let (ClusterCommand::Status(nats) | ClusterCommand::Drain { nats, .. }) = &self.command;
		let options = nats.access.options(None)?.name("flashfork cluster");
		let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
		runtime.map_err(CliError::file("start", "the command"))?.block_on(async {
			let client = connect(&nats.nats, options, |_| ()).await?;
			match &self.command {
				ClusterCommand::Status(_) => print(&status::all(&client).await?),
				ClusterCommand::Drain { node, .. } => drain(&client, node).await,
			}
		})
	}
}

fn print(nodes: &[status::Node]) -> Result<ExitCode, CliError> {
	let rows: Vec<_> = nodes
		.iter()
		.map(|node| {
			let slots = format!("{}/{}", node.free, node.slots);
			let (calls, memory) = (node.calls.to_string(), format!("{} MB", node.memory));
			vec![node.node.clone(), node.state.clone(), node.warm.join(" "), slots, calls, memory]
		})
		.collect();
	output::say(&table::render(&["node", "state", "warm", "slots free", "calls", "memory free"], &rows, 3))?;
	Ok(ExitCode::SUCCESS)
}

async fn drain(client: &async_nats::Client, node: &str) -> Result<ExitCode, CliError> {
	if !crate::store::is_plain(node) {
		return Err(CliError::Unable(format!("{node} is no name of a node")));
	}
	match ask(client, wire::own(node, "drain"), &Order::new(uuid(), "", ""), Bytes::new()).await {
		Ok(Heard::Said(..)) => {
			output::say(&format!("{node} is drained"))?;
			Ok(ExitCode::SUCCESS)
		}
		Ok(Heard::Nobody | Heard::Full) => Err(CliError::Unable(format!("there is no node {node}"))),
		Ok(Heard::TooLarge(e)) | Err(e) => Err(CliError::Unable(e.why)),
	}
}
