//! The example of a program that runs in each clone, in directories of its own.

use std::{path::Path, process::Command};

#[test]
fn ssh_host_keys_are_made_anew_and_no_others() {
	let hook = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/clone.d/10-ssh-host-keys");
	// A key of one kind, which is all that this server has; and a server, which is told.
	let script = r#"
        mount -t tmpfs none /etc/ssh && mount -t tmpfs none /run || exit 77
        ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
        cp /etc/ssh/ssh_host_ed25519_key.pub /etc/ssh/before
        trap 'told=1' HUP
        echo $$ >/run/sshd.pid
        "$1" || exit 1
        ls /etc/ssh
        [ "$told" = 1 ] || exit 1
        ! cmp -s /etc/ssh/before /etc/ssh/ssh_host_ed25519_key.pub || exit 1
        ssh-keygen -y -f /etc/ssh/ssh_host_ed25519_key | cut -d' ' -f2 >/run/derived || exit 1
        cut -d' ' -f2 /etc/ssh/ssh_host_ed25519_key.pub | cmp - /run/derived || exit 1
        # Where there is no ssh-keygen, nothing is touched.
        cp /etc/ssh/ssh_host_ed25519_key /run/key
        PATH=/nonexistent /bin/sh "$1" && cmp /etc/ssh/ssh_host_ed25519_key /run/key
    "#;
	let found = |program: &str| Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
	if !["ssh-keygen", "unshare"].into_iter().all(|program| found(program).status.success()) {
		eprintln!("skipped: needs ssh-keygen and unshare");
		return;
	}
	let mut command = Command::new("unshare");
	command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(hook);
	let output = command.output().unwrap();
	if output.status.code() == Some(77) || String::from_utf8_lossy(&output.stderr).contains("unshare failed") {
		eprintln!("skipped: no namespaces here: {}", String::from_utf8_lossy(&output.stderr));
		return;
	}
	assert!(output.status.success(), "{output:?}");
	assert_eq!(String::from_utf8_lossy(&output.stdout), "before\nssh_host_ed25519_key\nssh_host_ed25519_key.pub\n");
}
