package flashfork;

import java.io.File;
import java.nio.charset.Charset;

/** For programs that say themselves where they are warm ({@code flashfork warm --threads --ready call}). */
public final class Flashfork {
	/** The shim, which the dynamic linker loads into templates, and what lies beside it. */
	private static final String SHIM = "libflashfork_preload.so";

	private static final String LIBRARY = "libflashfork_java.so";

	private Flashfork() {}

	/**
	 * The program is warm. Under {@code flashfork warm --threads --ready call} this returns in each clone, once, with
	 * the arguments that its caller gave to {@code flashfork clone}; {@code System.getenv}, working directory
	 * ({@code user.dir} too) and standard streams are the caller's then. Wherever there is nothing to wait for it returns at once with the
	 * arguments given here: the program was started without {@code flashfork warm} or with another ready point, or this
	 * is a clone already.
	 *
	 * @param arguments what the program goes on with when it is no clone
	 * @return the arguments to go on with
	 */
	public static String[] ready(String[] arguments) {
		String library = library();
		if (library == null) {
			return arguments;
		}
		System.load(library);
		// Clones would print it again.
		System.out.flush();
		System.err.flush();
		byte[][] given = waitForCaller();
		return given == null ? arguments : decoded(given);
	}

	/** Null where there is no template. */
	private static String library() {
		String preloaded = System.getenv("LD_PRELOAD");
		if (preloaded != null) {
			for (String path : preloaded.split("[ :]")) {
				File file = new File(path);
				if (file.getName().equals(SHIM)) {
					return new File(file.getParentFile(), LIBRARY).getAbsolutePath();
				}
			}
		}
		return null;
	}

	/** As the virtual machine does it with those of {@code main}. */
	private static String[] decoded(byte[][] given) {
		Charset charset = Charset.forName(System.getProperty("sun.jnu.encoding", "UTF-8"));
		String[] all = new String[given.length];
		for (int i = 0; i < all.length; i++) {
			all[i] = new String(given[i], charset);
		}
		return all;
	}

	/** Null where there is nothing to wait for. */
	private static native byte[][] waitForCaller();
}
