//! Generators of random numbers of the Java class library: what of each is renewed, and how it is found.
//!
//! The state of each is overwritten with bytes of the kernel's. Whatever state there was, the next is as good as any:
//! the state of a `SHA1PRNG` is what came of a hash, keys and values of a `DRBG` are what came of a hash or cipher, a
//! `NativePRNG` keeps bytes of the kernel's, and seeds of `java.util.Random` and its like are any numbers. Generators
//! that a program has made for itself (`new Random(42)`, `new SplittableRandom()`) are its own: they are left alone.

use crate::{
	classes::Classes,
	java::Java,
	tool::{EachObject, Tool},
};
use jni_sys::{jclass, jfieldID, jint, jlong, jmethodID, jobject};
use std::{
	collections::HashSet,
	ffi::{CStr, c_void},
};

/// Classes whose instances keep their state in arrays of bytes, and the fields for these.
const STATES: [(&str, &[&CStr]); 5] = [
	("sun/security/provider/NativePRNG$RandomIO", &[c"nextBuffer"]),
	("sun/security/provider/SecureRandom", &[c"state", c"remainder"]),
	("sun/security/provider/HashDrbg", &[c"v", c"c"]),
	("sun/security/provider/HmacDrbg", &[c"k", c"v"]),
	("sun/security/provider/CtrDrbg", &[c"k", c"v"]),
];

/// Generators whose classes are these have their state in one of those; OpenSSL and its like renew their own.
const WITHOUT_STATE: [&str; 6] = [
	"sun/security/provider/NativePRNG",
	"sun/security/provider/NativePRNG$Blocking",
	"sun/security/provider/NativePRNG$NonBlocking",
	"sun/security/provider/SecureRandom",
	"sun/security/provider/DRBG",
	"org/conscrypt/OpenSSLRandom",
];

/// What generators of cryptographic numbers are instances of: one of another kind is not known.
const SERVICE: &str = "java/security/SecureRandomSpi";
const MECHANISM: &str = "sun/security/provider/AbstractDrbg";
/// Used without `/dev/random`.
const THREADED: &str = "sun/security/provider/SeedGenerator$ThreadedSeedGenerator";

/// What each thread keeps for `ThreadLocalRandom`.
const THREAD: &str = "java/lang/Thread";
const VIRTUAL_THREAD: &str = "java/lang/VirtualThread";
const SEED_OF_THREAD: &CStr = c"threadLocalRandomSeed";

/// Static fields from whose `AtomicLong` new generators and threads get their seeds. One of these has them.
const SEEDERS: [(&str, &[&CStr]); 3] = [
	("java/util/concurrent/ThreadLocalRandom", &[c"seeder"]),
	("java/util/Random", &[c"seedUniquifier"]),
	("java/util/SplittableRandom", &[c"defaultGen"]),
];
const MORE_SEEDERS: &[&CStr] = &[c"defaultGen", c"DEFAULT_GEN"];
const PACKAGES: [&str; 2] = ["jdk/random/", "jdk/internal/random/"];
const OF_PACKAGES: [&str; 10] = [
	"L32X64MixRandom",
	"L64X128MixRandom",
	"L64X128StarStarRandom",
	"L64X256MixRandom",
	"L64X1024MixRandom",
	"L128X128MixRandom",
	"L128X256MixRandom",
	"L128X1024MixRandom",
	"Xoroshiro128PlusPlus",
	"Xoshiro256PlusPlus",
];

/// Static fields with a `java.util.Random` of the library's own: of `Math.random` and `Collections.shuffle`.
const RANDOMS: [(&str, &CStr); 3] = [
	("java/lang/Math$RandomNumberGeneratorHolder", c"randomNumberGenerator"),
	("java/lang/StrictMath$RandomNumberGeneratorHolder", c"randomNumberGenerator"),
	("java/util/Collections", c"r"),
];

/// Other classes in whose methods a thread may have the state of a generator in its hands: it writes it back later.
const IN_HANDS: [&str; 4] = [
	MECHANISM,
	"sun/security/provider/AbstractHashDrbg",
	"sun/security/provider/AbstractDrbg$SeederHolder",
	"sun/security/provider/SecureRandom$SeederHolder",
];
/// Methods where this is so, of classes of which others only have in their hands what was drawn; and what initialises
/// the classes of [`SEEDERS`] and [`RANDOMS`]. An `AtomicLong` is changed in one step, or read once more.
const METHODS_WITH_STATE_IN_HANDS: [(&str, &str); 3] = [
	("java/util/concurrent/ThreadLocalRandom", "nextSeed"),
	("java/util/concurrent/ThreadLocalRandom", "localInit"),
	("java/util/Collections", "shuffle"),
];
const INITIALISER: &str = "<clinit>";

const ATOMIC: &str = "java/util/concurrent/atomic/AtomicLong";
const AN_ATOMIC: &CStr = c"Ljava/util/concurrent/atomic/AtomicLong;";
const A_RANDOM: &CStr = c"Ljava/util/Random;";
const BYTES: &CStr = c"[B";
const LONG: &CStr = c"J";

/// A piece of state.
enum Write {
	/// An array of bytes, and its length.
	Bytes(jobject, usize),
	/// A `long` in a field.
	Long(jobject, jfieldID, Shape),
}

/// Which numbers may be there.
enum Shape {
	Any,
	/// It is multiplied.
	Odd,
	/// The state of a `java.util.Random`.
	Bits48,
}

/// All that is renewed.
pub struct Generators {
	writes: Vec<Write>,
	virtual_threads: Vec<jobject>,
}

/// Tags: of the classes in [`STATES`] their numbers from 1 on, then these; of instances that of their class and this.
const OF_THREADS: jlong = 101;
const OF_VIRTUAL_THREADS: jlong = 102;
/// From here on classes that are not known.
const UNKNOWN: jlong = 1000;
const INSTANCE: jlong = 1 << 32;

impl Generators {
	/// Finds them; no Java code must run until they are renewed.
	pub fn find(java: &Java, tool: &Tool, classes: &Classes) -> Result<Generators, String> {
		let mut found = Generators { writes: Vec::new(), virtual_threads: Vec::new() };
		found.find_seeders(java, tool, classes)?;
		found.find_instances(java, tool, classes)?;
		Ok(found)
	}

	/// Virtual threads, of which the others know nothing.
	pub fn virtual_threads(&self) -> &[jobject] {
		&self.virtual_threads
	}

	fn find_seeders(&mut self, java: &Java, tool: &Tool, classes: &Classes) -> Result<(), String> {
		let more = PACKAGES.iter().flat_map(|package| OF_PACKAGES.map(|class| format!("{package}{class}")));
		let all = SEEDERS.map(|(class, fields)| (class.to_owned(), fields)).into_iter();
		for (name, fields) in all.chain(more.map(|class| (class, MORE_SEEDERS))) {
			let Some(class) = classes.initialised(tool, &name)? else { continue };
			let field = fields.iter().find_map(|field| java.static_field(class, field, AN_ATOMIC).ok());
			let field = field.ok_or_else(|| unknown(&name))?;
			let shape = if name == "java/util/Random" { Shape::Odd } else { Shape::Any };
			self.note_atomic(java, tool, classes, java.static_object(class, field), shape)?;
		}
		for (name, field) in RANDOMS {
			let Some(class) = classes.initialised(tool, name)? else { continue };
			let field = java.static_field(class, field, A_RANDOM).map_err(|_| unknown(name))?;
			let random = java.static_object(class, field);
			let Some(class) = classes.named("java/util/Random").filter(|_| !random.is_null()) else { continue };
			let seed = java.field(class, c"seed", AN_ATOMIC).map_err(|_| unknown("java/util/Random"))?;
			self.note_atomic(java, tool, classes, java.object(random, seed), Shape::Bits48)?;
		}
		Ok(())
	}

	fn note_atomic(
		&mut self,
		java: &Java,
		tool: &Tool,
		classes: &Classes,
		atomic: jobject,
		shape: Shape,
	) -> Result<(), String> {
		let class = classes.initialised(tool, ATOMIC)?.filter(|_| !atomic.is_null()).ok_or_else(|| unknown(ATOMIC))?;
		let value = java.field(class, c"value", LONG).map_err(|_| unknown(ATOMIC))?;
		self.writes.push(Write::Long(atomic, value, shape));
		Ok(())
	}

	fn find_instances(&mut self, java: &Java, tool: &Tool, classes: &Classes) -> Result<(), String> {
		let tags = tag_classes(java, tool, classes)?;
		tool.walk(note_object)?;
		let instances: Vec<_> = tags.iter().map(|(_, tag, _)| tag + INSTANCE).collect();
		let thread = classes.named(THREAD).ok_or_else(|| unknown(THREAD))?;
		let seed = java.field(thread, SEED_OF_THREAD, LONG).map_err(|_| unknown(THREAD))?;
		let found = tool.tagged(&instances)?;
		for (object, tag) in found {
			let tag = tag - INSTANCE;
			let (_, _, name) = tags.iter().find(|(_, own, _)| *own == tag).ok_or("its tags are other agents'")?;
			match tag {
				OF_THREADS | OF_VIRTUAL_THREADS => {
					self.writes.push(Write::Long(object, seed, Shape::Any));
					if tag == OF_VIRTUAL_THREADS {
						self.virtual_threads.push(object);
					}
				}
				UNKNOWN.. => return Err(unknown(name)),
				tag => self.note_state(java, classes, object, &STATES[tag as usize - 1])?,
			}
			tool.tag(object, 0)?;
		}
		tags.iter().try_for_each(|(class, _, _)| tool.tag(*class, 0))
	}

	fn note_state(
		&mut self,
		java: &Java,
		classes: &Classes,
		object: jobject,
		(name, fields): &(&str, &[&CStr]),
	) -> Result<(), String> {
		let class = classes.named(name).ok_or_else(|| unknown(name))?;
		for field in *fields {
			let field = java.field(class, field, BYTES).map_err(|_| unknown(name))?;
			let array = java.object(object, field);
			if !array.is_null() {
				self.writes.push(Write::Bytes(array, java.len(array) as usize));
			}
		}
		Ok(())
	}

	/// In a clone: gives all of them another state.
	pub fn renew(&self, java: &Java) -> Result<(), String> {
		let len = |write: &Write| match write {
			Write::Bytes(_, len) => *len,
			Write::Long(..) => size_of::<jlong>(),
		};
		// The kernel is asked once for all.
		let all = random(self.writes.iter().map(len).sum())?;
		let mut rest = &*all;
		for write in &self.writes {
			let (bytes, others) = rest.split_at(len(write));
			rest = others;
			match write {
				Write::Bytes(array, _) => java.set_bytes(*array, bytes)?,
				Write::Long(object, field, shape) => {
					let number = bytes.iter().fold(0, |number: jlong, byte| number << 8 | jlong::from(*byte));
					let number = match shape {
						Shape::Any => number,
						Shape::Odd => number | 1,
						Shape::Bits48 => number & ((1 << 48) - 1),
					};
					java.set_long(*object, *field, number);
				}
			}
		}
		Ok(())
	}
}

/// The methods in which a thread may have the state of a generator in its hands.
pub fn methods(tool: &Tool, classes: &Classes) -> Result<HashSet<jmethodID>, String> {
	let mut found = HashSet::new();
	for (name, class) in classes.all() {
		let all = STATES.iter().any(|(own, _)| *own == name) || IN_HANDS.contains(&name);
		let of_package = |package: &&str| name.strip_prefix(package).is_some_and(|rest| OF_PACKAGES.contains(&rest));
		let some = SEEDERS.iter().any(|(own, _)| *own == name)
			|| RANDOMS.iter().any(|(own, _)| *own == name)
			|| PACKAGES.iter().any(of_package);
		if !all && !some {
			continue;
		}
		let mut some_left = METHODS_WITH_STATE_IN_HANDS.iter().filter(|(own, _)| *own == name).count();
		for method in tool.methods(class) {
			let own = tool.method_name(method)?;
			let is_one = METHODS_WITH_STATE_IN_HANDS.contains(&(name, &own));
			if all || own == INITIALISER || is_one {
				found.insert(method);
			}
			// There may be several of a name.
			some_left = some_left.saturating_sub(usize::from(is_one));
		}
		if some_left > 0 {
			return Err(unknown(name));
		}
	}
	Ok(found)
}

/// The field of a thread that is 0 until it has drawn from a `ThreadLocalRandom`.
pub fn probe(java: &Java, classes: &Classes) -> Result<jfieldID, String> {
	let thread = classes.named(THREAD).ok_or_else(|| unknown(THREAD))?;
	java.field(thread, c"threadLocalRandomProbe", c"I").map_err(|_| unknown(THREAD))
}

/// Tags all classes whose instances are looked for. Each with its tag and name.
fn tag_classes<'a>(java: &Java, tool: &Tool, classes: &'a Classes) -> Result<Vec<(jclass, jlong, &'a str)>, String> {
	let [thread, virtual_thread, service, mechanism] =
		[THREAD, VIRTUAL_THREAD, SERVICE, MECHANISM].map(|name| classes.named(name));
	let is_a = |class, other: Option<jclass>| other.is_some_and(|other| java.is_a(class, other));
	let mut all = Vec::new();
	for (name, class) in classes.all() {
		let tag = if let Some(state) = STATES.iter().position(|(own, _)| *own == name) {
			state as jlong + 1
		} else if is_a(class, virtual_thread) {
			OF_VIRTUAL_THREADS
		} else if is_a(class, thread) {
			OF_THREADS
		} else if name == THREADED || is_a(class, mechanism) || is_a(class, service) && !WITHOUT_STATE.contains(&name) {
			UNKNOWN + all.len() as jlong
		} else {
			continue;
		};
		tool.tag(class, tag)?;
		all.push((class, tag, name));
	}
	Ok(all)
}

extern "system" fn note_object(class: jlong, _: jlong, tag: *mut jlong, _: jint, _: *mut c_void) -> jint {
	const _: EachObject = note_object;
	// A class may be an instance of nothing looked for.
	if class != 0 {
		// SAFETY: the virtual machine's own variable.
		unsafe { *tag = class + INSTANCE };
	}
	0
}

fn random(count: usize) -> Result<Vec<u8>, String> {
	let mut bytes = vec![0; count];
	let mut have = 0;
	while have < count {
		let left = &mut bytes[have..];
		// SAFETY: there is room for as many as are asked for.
		match unsafe { libc::getrandom(left.as_mut_ptr().cast(), left.len(), 0) } {
			-1 if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
			-1 => return Err(format!("getrandom: {}", std::io::Error::last_os_error())),
			got => have += got as usize,
		}
	}
	Ok(bytes)
}

fn unknown(class: &str) -> String {
	class.replace('/', ".")
}
