//! A program that says itself where it is ready:
//!
//!     flashfork warm --ready call t -- target/debug/examples/ready
//!     ONE=1 flashfork clone t a b

fn main() {
	println!("warming");
	let table: Vec<u64> = (0..1 << 20).map(|n| n * n).collect();
	// SAFETY: this program has one thread, and nobody holds strings of its environment.
	match unsafe { flashfork::ready() } {
		Some(arguments) => println!("a clone for {arguments:?} with {:?}", std::env::var("ONE")),
		None => println!("no template"),
	}
	assert_eq!(table[1000], 1_000_000);
}
