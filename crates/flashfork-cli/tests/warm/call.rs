//! Programs that say themselves where they are ready.

use crate::place::{Place, line, stdout};

const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int (*ready)(int *, char ***) = (int (*)(int *, char ***))dlsym(RTLD_DEFAULT, "flashfork_preload_ready");
    if (argc > 1 && argv[1][0] == 'x') return 9;
    puts("warming");
    int in_clone = ready ? ready(&argc, &argv) : 0;
    for (int i = 1; i < argc; i++) printf("%s ", argv[i]);
    printf("%d %d %s\n", in_clone, ready ? ready(&argc, &argv) : 0, getenv("ONE") ? getenv("ONE") : "");
    return argc;
}
"#;

#[test]
fn a_program_is_ready_where_it_calls() {
    let place = Place::new();
    let program = place.program("calls", PROGRAM);
    let program = program.to_str().unwrap();
    let warmed = place.run(&["warm", "--ready", "call", "t", "--", program, "a"]);
    assert!(stdout(&warmed).starts_with("warming\nt is ready where it called"), "{}", stdout(&warmed));
    for _ in 0..2 {
        let clone = place.flashfork(&["clone", "t", "b"]).env("ONE", "1").output().unwrap();
        assert_eq!((stdout(&clone), clone.status.code()), ("a b 1 0 1\n", Some(3)));
    }
    let never = place.run(&["warm", "--ready", "call", "u", "--", program, "x"]);
    assert!(line(&never).contains("exit status 9 before it was ready"), "{}", line(&never));
}
