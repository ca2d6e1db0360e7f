//! Objects of System V (`svipc(7)`).

use crate::{
	place::{assert_says, stderr, stdout},
	programs::Program,
};

/// Clones would have them together, and the template's end would give back what was taken with `SEM_UNDO`.
#[test]
fn objects_of_system_v_that_are_the_programs_own_are_refused() {
	const STATEMENTS: [&str; 5] = [
		"id = semget(IPC_PRIVATE, 1, 0600);",
		"id = semget(0x666c6173, 1, 0600 | IPC_CREAT); semctl(id, 0, SETVAL, 1); struct sembuf take = {0, -1, SEM_UNDO}; semop(id, &take, 1);",
		"kind = 'q'; id = msgget(IPC_PRIVATE, 0600);",
		"kind = 'm'; id = shmget(IPC_PRIVATE, 4096, 0600);",
		"kind = 'm'; id = shmget(IPC_PRIVATE, 4096, 0600); char *p = shmat(id, 0, 0); *p = 1;",
	];
	for statement in STATEMENTS {
		let program = Program::new(&format!(
			r#"
int main(int count, char **all) {{
	int kind = 's', id;
	if (count == 3) {{
		kind = all[1][0]; id = atoi(all[2]);
		return kind == 's' ? semctl(id, 0, IPC_RMID) : kind == 'q' ? msgctl(id, IPC_RMID, 0) : shmctl(id, IPC_RMID, 0);
	}}
	another(); {statement}
	printf("%c %d\n", kind, id); fflush(stdout); READY; return 0;
}}
"#
		));
		let refused = program.try_warm(&[]);
		let words: Vec<&str> = stdout(&refused).split_whitespace().collect();
		assert_eq!(program.plain(&words).status.code(), Some(0), "it is removed: {words:?}");
		let said = stderr(&refused);
		assert_says(said, "of System V, which its clones would have together");
	}
	// What is gone is nobody's.
	let program = Program::new(
		"int main(void) { another(); int id = shmget(IPC_PRIVATE, 4096, 0600); shmdt(shmat(id, 0, 0)); shmctl(id, IPC_RMID, 0); READY; puts(\"here\"); return 0; }",
	);
	program.is_the_same_in_clones(1);
}
