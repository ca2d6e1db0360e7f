import java.io.IOException;
import java.net.URI;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.SplittableRandom;
import java.util.stream.IntStream;
import java.util.stream.LongStream;

/**
 * A job server with a heavy start: loads and links thousands of classes, warms up, then estimates π for each line that
 * comes by a FIFO. Usage: Pi JOBS RESULTS READY, all of them FIFOs. A line of JOBS is a seed; one of RESULTS, seed and π.
 */
public final class Pi {
	private static final int CLASSES = 5000;
	/** As Spark's example: two slices of 100,000 points. */
	private static final int SLICES = 2;
	private static final int POINTS = 100_000;

	public static void main(String[] args) throws IOException {
		var loaded = load();
		for (int seed = 0; seed < 3; seed++) {
			estimate(seed);
		}
		Files.writeString(Path.of(args[2]), loaded + " classes\n");
		while (true) {
			var job = Files.readString(Path.of(args[0])).trim();
			Files.writeString(Path.of(args[1]), job + " " + estimate(Long.parseLong(job)) + "\n");
		}
	}

	/** Loads classes of the JDK as a large library's would be loaded; how many. */
	static long load() throws IOException {
		var modules = FileSystems.getFileSystem(URI.create("jrt:/")).getPath("modules");
		long loaded = 0;
		for (var module : new String[] {"java.base", "java.xml", "java.logging", "java.net.http"}) {
			var root = modules.resolve(module);
			try (var files = Files.walk(root)) {
				loaded += files.map(file -> root.relativize(file).toString())
					.filter(name -> name.startsWith("java") && name.endsWith(".class") && !name.contains("-info"))
					.sorted().limit(CLASSES - loaded).filter(Pi::link).count();
			}
		}
		return loaded;
	}

	private static boolean link(String file) {
		try {
			var name = file.substring(0, file.length() - ".class".length()).replace('/', '.');
			return Class.forName(name, false, null).getDeclaredMethods() != null;
		} catch (ClassNotFoundException | LinkageError notHere) {
			return false;
		}
	}

	static double estimate(long seed) {
		long within = IntStream.range(0, SLICES).parallel().mapToLong(slice -> {
			var random = new SplittableRandom(seed * SLICES + slice);
			return LongStream.range(0, POINTS).filter(point -> {
				double x = random.nextDouble() * 2 - 1;
				double y = random.nextDouble() * 2 - 1;
				return x * x + y * y <= 1;
			}).count();
		}).sum();
		return 4.0 * within / (SLICES * POINTS);
	}
}
