//! Kernel modules: those in `/lib/flashfork/modules`, in the order of the list `order` there.

use std::{
	fs::{self, File},
	io,
	path::Path,
};

use rustix::system::finit_module;

const DIRECTORY: &str = "/lib/flashfork/modules";

/// Loads them all. An image without a list has none to load.
pub fn load_all() -> Result<(), String> {
	let directory = Path::new(DIRECTORY);
	let order = match fs::read_to_string(directory.join("order")) {
		Ok(order) => order,
		Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
		Err(error) => return Err(format!("cannot read the list of modules: {error}")),
	};
	for name in order.lines().filter(|name| !name.is_empty()) {
		let path = directory.join(format!("{name}.ko"));
		let file = File::open(&path).map_err(|error| format!("cannot open module {name}: {error}"))?;
		match finit_module(&file, c"", 0) {
			Ok(()) | Err(rustix::io::Errno::EXIST) => {}
			Err(errno) => return Err(format!("the kernel refuses module {name}: {errno}")),
		}
	}
	Ok(())
}
