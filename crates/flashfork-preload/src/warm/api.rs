//! Functions of runtimes, looked up in the program: the shim is loaded into programs with none.

/// Declares a table of functions, `Api`, found by name in the program. Each has the type that its runtime's
/// documentation gives.
macro_rules! api {
	($($name:ident: fn($($arg:ty),*) $(-> $result:ty)?;)*) => {
		#[allow(non_snake_case)]
		struct Api { $($name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)* }

		impl Api {
			/// `None` if the program lacks one of these.
			fn find() -> Option<Api> {
				Some(Api { $($name: {
					// SAFETY: a look-up; a function of that name has this type.
					unsafe {
						let found = libc::dlsym(libc::RTLD_DEFAULT, concat!(stringify!($name), "\0").as_ptr().cast());
						if found.is_null() {
							return None;
						}
						core::mem::transmute_copy(&found)
					}
				},)* })
			}
		}
	};
}

pub(super) use api;
